import type { Readable } from 'node:stream';
import type { Caller } from '../access/caller.js';
import { readerOf } from '../access/reader.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { announceTemplate } from '../db/changes.js';
import type { Sql } from '../db/pool.js';
import type { Transaction } from '../db/transaction.js';
import { ApiError, badParameter } from '../http/errors.js';
import type { Writer } from '../idempotency/keyed.js';
import { inWrite } from '../idempotency/write.js';
import { newId } from '../lib/uuid.js';
import { lockQuotas } from '../quotas/queries.js';
import { reserve } from '../quotas/reserve.js';
import { checkSelection } from '../registry-credentials/check-selection.js';
import { refuseWithoutSnapshots } from '../snapshots/supported.js';
import { SPECIFICATION, type CreateSandboxRequest } from '../spec/specification.js';
import { argNames } from './build/plan.js';
import { deleteContext } from './context/queries.js';
import { receiveBuild, type Received } from './context/receive.js';
import { DockerfileError, refusalOf } from './dockerfile/error.js';
import { parseDockerfile } from './dockerfile/parse.js';
import {
  neededStages,
  readStages,
  showSource,
  sourcesOf,
  targetOf,
  type Source,
} from './dockerfile/stages.js';
import { presentTemplate } from './present.js';
import { countUnfinished, findNamed, insertTemplate } from './queries.js';
import { readRequest, type BuildQuery } from './read-request.js';
import type { TemplateResponse } from './schema.js';
import type { Step } from '../registry/step.js';
import { refuseTakenTag } from './taken-tag.js';

/** Each waits in the store with its context. */
export const MOST_UNFINISHED = 10;
/** The user of the sandbox of a build, who may write every file. A step runs as the user of its instruction. */
export const BUILD_USER = '0:0';

type Request = ReturnType<typeof readRequest>;

/** Admits a build. Returns before it begins. `writerWith` gets the digest of the body. */
export async function createTemplate(
  ctx: Context,
  caller: Caller,
  writerWith: (digest: string) => Writer,
  query: BuildQuery,
  { body, step }: { body: Readable | undefined; step: Step },
): Promise<TemplateResponse> {
  const id = newId();
  const key = { orgId: caller.orgId, templateId: id };
  let kept = false;
  try {
    refuseWithoutSnapshots(ctx.runtime);
    // The context is written to the database as it arrives.
    ctx.disk.checkAll();
    const request = readRequest(caller, query);
    const received = await receiveBuild(ctx, key, body, {
      dockerfilePath: request.dockerfilePath,
      step,
    });
    const writer = writerWith(received.bodyDigest);
    const admitted = checkBuild(ctx, request, received);
    const answer = await inWrite(ctx, writer, (tx) =>
      insert(ctx, tx, writer, { id, request, received, ...admitted }),
    );
    // A repeated request has the answer of the first one.
    kept = answer.id === id;
    return answer;
  } finally {
    if (!kept) await deleteContext(ctx.pool, key);
  }
}

function checkBuild(
  { runtime }: Context,
  { buildArgs, target: wanted, sandbox, labels }: Request,
  { dockerfile }: Received,
): Checked {
  try {
    const parsed = parseDockerfile(dockerfile);
    const declared = argNames(parsed);
    const unknown = Object.keys(buildArgs).find((name) => !declared.has(name));
    if (unknown !== undefined) {
      throw badParameter(
        'build_args',
        `build_args: the Dockerfile has no "ARG ${unknown.slice(0, 80)}": add it, or leave the value out`,
      );
    }
    const file = readStages(parsed, new Map(Object.entries(buildArgs)));
    const target = targetOf(file, wanted);
    if (!target) {
      const names = file.stages.map(({ name, index }) => name ?? `${index}`).join(', ');
      throw badParameter(
        'target',
        `target: the Dockerfile has no such stage; its stages are ${names.slice(0, 500)}`,
      );
    }
    const stages = neededStages(file, target);
    const sources = stages.flatMap(sourcesOf);
    const base = showSource(target.base, file.stages);
    const image = sources.find(({ type }) => type === 'image');
    const reference = image?.type === 'image' ? image.reference : 'template';
    const request: CreateSandboxRequest = {
      name: 'build',
      image: { type: 'oci', reference },
      labels,
      runtime: { user: BUILD_USER },
      ...sandbox,
    };
    SPECIFICATION.check(request, runtime);
    const instructions = stages.flatMap((stage) => stage.instructions);
    const steps = instructions.filter(({ type }) => ['run', 'copy', 'workdir'].includes(type)).length;
    return { base, steps, sources };
  } catch (error) {
    throw error instanceof DockerfileError ? refusalOf(error) : error;
  }
}

interface Checked {
  /** That of the stage that is built. */
  base: string;
  steps: number;
  /** Everything that the build begins with, or copies from. */
  sources: Source[];
}

interface Admitted extends Checked {
  id: string;
  request: Request;
  received: Received;
}

async function insert(
  ctx: Context,
  tx: Transaction,
  caller: Writer,
  { id, request, received, base, steps, sources }: Admitted,
): Promise<TemplateResponse> {
  const { orgId, actor } = caller;
  // Serializes the requests of the organization, also without limits.
  await lockQuotas(tx, orgId, 'exclusive');
  await reserve(ctx, tx, caller, { snapshot: true });
  const unfinished = await countUnfinished(tx, orgId);
  if (unfinished >= MOST_UNFINISHED) {
    throw new ApiError(
      'quota_exceeded',
      `${unfinished} builds of the organization wait or run: wait for some of them, or cancel one`,
      { limit: MOST_UNFINISHED, used: unfinished },
    );
  }
  for (const source of sources) {
    if (source.type !== 'image') continue;
    const image = { type: 'oci', reference: source.reference } as const;
    await checkSelection(tx, orgId, { ...request.sandbox, image });
  }
  const { name, tag } = request;
  await refuseTakenTag(tx, readerOf(caller), name, tag);
  const row = await insertTemplate(tx, {
    org_id: orgId,
    id,
    name,
    tag,
    labels: request.labels,
    key_labels: caller.access.labels,
    dockerfile: received.dockerfile,
    build_args: request.buildArgs,
    target: request.target,
    sandbox: request.sandbox,
    uses_cache: request.usesCache,
    context_digest: received.context ? `sha256:${received.context.digest}` : null,
    context_bytes: received.context?.bytes ?? null,
    timeout_secs: request.timeoutSecs,
    runtime: ctx.runtime.name,
    worker_id: await workerOf(ctx, tx, caller, sources),
    actor,
    steps,
    created_at: ctx.now(),
  });
  await recordEvent(tx, {
    orgId,
    type: 'template_build_requested',
    actor,
    resourceId: id,
    at: row.created_at,
    payload: { template_id: id, name, tag, base, steps, context_bytes: row.context_bytes },
  });
  await announceTemplate(tx, id);
  return presentTemplate(row);
}

/** The snapshot of a template is on one engine. */
async function workerOf(ctx: Context, tx: Sql, caller: Caller, sources: readonly Source[]): Promise<string> {
  const refuse = (message: string): never => {
    throw new ApiError('template_not_found', message, { field: 'dockerfile' });
  };
  let workerId: string | undefined;
  for (const source of sources) {
    if (source.type !== 'template') continue;
    const { name, tag } = source;
    const found = await findNamed(tx, readerOf(caller), name, tag);
    if (!found || found.runtime !== ctx.runtime.name) return refuse(`there is no template "${name}:${tag}"`);
    if (workerId !== undefined && found.worker_id !== workerId)
      return refuse(
        `the template "${name}:${tag}" is on another engine than those before: build it again beside them`,
      );
    workerId = found.worker_id;
  }
  return workerId ?? ctx.runtime.engineId;
}
