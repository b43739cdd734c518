import { v7 as uuidv7 } from 'uuid';
import type { Context } from '../context.js';
import { announceChange } from '../db/changes.js';
import { violatedConstraint, type Sql } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { recordEvent } from '../events/record.js';
import type { Caller } from '../http/auth.js';
import { ApiError } from '../http/errors.js';
import { lockActiveVolumes } from '../volumes/queries.js';
import { admit } from './admit.js';
import { makeSlug } from './names.js';
import { presentSandbox } from './present.js';
import { insertLabels, insertMounted, insertSandbox } from './queries.js';
import { requestRun } from './request-run.js';
import { resolve } from './resolve.js';
import type { CreateSandboxRequest, SandboxResponse } from './schema.js';

const SLUG_ATTEMPTS = 5;

/** Makes a sandbox and, when asked to, admits its first run. Returns without waiting for it to run. */
export async function create(
  ctx: Context,
  caller: Caller,
  request: CreateSandboxRequest,
  { start }: { start: boolean },
): Promise<SandboxResponse> {
  admit(request, ctx.runtime);
  for (let attempt = 1; ; attempt += 1) {
    const slug = request.slug ?? makeSlug();
    try {
      return await inTransaction(ctx.pool, (tx) => insert(ctx, tx, caller, { ...request, slug }, start));
    } catch (error) {
      switch (violatedConstraint(error)) {
        case 'sandboxes_name':
          throw new ApiError(
            'name_already_exists',
            `a sandbox with the name "${request.name}" already exists`,
            {
              name: request.name,
            },
          );
        case 'sandboxes_slug':
          // A slug of our own making that is taken is our bad luck, not the caller's.
          if (request.slug == null && attempt < SLUG_ATTEMPTS) continue;
          throw new ApiError('name_already_exists', `a sandbox with the slug "${slug}" already exists`, {
            slug,
          });
        default:
          throw error;
      }
    }
  }
}

async function insert(
  ctx: Context,
  tx: Sql,
  { orgId, actor }: Caller,
  request: CreateSandboxRequest & { slug: string },
  start: boolean,
): Promise<SandboxResponse> {
  const id = uuidv7();
  const at = ctx.now();
  const { runSpec, spec } = resolve(request);
  const volumeIds = await volumesOf(tx, orgId, request);
  const row = await insertSandbox(tx, {
    org_id: orgId,
    id,
    name: request.name,
    slug: request.slug,
    ephemeral: spec.lifecycle.ephemeral ?? false,
    created_at: at,
    spec,
    run_spec: runSpec,
    runtime: ctx.runtime.name,
  });
  await insertLabels(tx, row, spec.labels);
  await insertMounted(tx, orgId, id, volumeIds);
  await recordEvent(tx, {
    orgId,
    type: 'sandbox_created',
    actor,
    resourceId: id,
    at,
    payload: { sandbox_id: id, name: row.name, slug: row.slug, image: runSpec.image, status: 'created' },
  });
  if (!start) return presentSandbox(row);
  const starting = await requestRun(tx, { ...row, run_spec: runSpec }, actor, ctx.now());
  await announceChange(tx, id);
  return presentSandbox(starting);
}

/** The ids of the volumes that are mounted; each must exist and not be on its way out. */
async function volumesOf(tx: Sql, orgId: string, { mounts = [] }: CreateSandboxRequest): Promise<string[]> {
  const names = [...new Set(mounts.flatMap((mount) => (mount.type === 'named' ? [mount.name] : [])))];
  if (names.length === 0) return [];
  const found = await lockActiveVolumes(tx, orgId, names);
  const missing = names.find((name) => !found.some((volume) => volume.name === name));
  if (missing !== undefined) {
    const index = mounts.findIndex((mount) => mount.type === 'named' && mount.name === missing);
    throw new ApiError('volume_not_found', `there is no volume with the name "${missing}"`, {
      field: `mounts[${index}].name`,
    });
  }
  return found.map(({ id }) => id);
}
