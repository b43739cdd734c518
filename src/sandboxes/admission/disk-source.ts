import type { Caller } from '../../access/caller.js';
import type { Sql } from '../../db/pool.js';
import type { Runtime } from '../../engine/runtime.js';
import { ApiError } from '../../http/errors.js';
import type { RunSpec } from '../../spec/run-spec.js';
import type { CreateSandboxRequest } from '../../spec/specification.js';
import { refuse } from '../../spec/refuse.js';
import { templateFields, type TemplateConfig } from '../../spec/template-config.js';

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

export type OfImage<Request extends CreateSandboxRequest> = Omit<Request, 'image'> & {
  image: { type: 'oci'; reference: string };
};

/** The snapshot that a disk is made from, and the engine that has it. */
export interface DiskSnapshot {
  id: string;
  workerId: string;
}

interface Sourced<Request extends CreateSandboxRequest> {
  request: OfImage<Request>;
  snapshot: DiskSnapshot | null;
}

/**
 * Replaces a snapshot or a template in a request by the image below it. The lock keeps the snapshot until the sandbox
 * is in the store. Throws `snapshot_not_found` and `template_not_found`.
 */
export async function withDiskSource<Request extends CreateSandboxRequest>(
  tx: Sql,
  { orgId, access }: Caller,
  request: Request,
  { name: runtime }: Pick<Runtime, 'name'>,
): Promise<Sourced<Request>> {
  const { image, ...rest } = request;
  if (image.type === 'oci') return { request: { ...rest, image }, snapshot: null };
  const labels = JSON.stringify(access.labels);
  if (image.type === 'template') {
    const { name, tag = 'latest' } = image;
    const found = await findTemplate(tx, [orgId, labels, runtime, name, tag]);
    if (!found) {
      throw new ApiError('template_not_found', `there is no template "${name}:${tag}"`, {
        field: 'image.name',
      });
    }
    const { request: ofImage, snapshot } = sourced<Request>(rest, found);
    return { request: { ...ofImage, ...templateFields(ofImage, found.config) }, snapshot };
  }
  const { rows } = await tx.query<Found>(
    `select id, image, worker_id, disk_mib from snapshots
     where org_id = $1 and labels @> $2::jsonb and runtime = $3 and status = 'ready' and removed_at is null
       and template_id is null and (id = $4::uuid or name = $5)
     for share`,
    [orgId, labels, runtime, UUID.test(image.id) ? image.id : null, image.id],
  );
  const [found] = rows;
  if (!found) {
    throw new ApiError('snapshot_not_found', `there is no snapshot "${image.id}" that is ready`, {
      field: 'image.id',
    });
  }
  return sourced(rest, found);
}

/** For a build, which names the snapshot of a template or a part of one. Throws `snapshot_not_found`. */
export async function onSnapshotOf<Request extends CreateSandboxRequest>(
  tx: Sql,
  orgId: string,
  request: Request,
  snapshotId: string,
): Promise<Sourced<Request>> {
  const { image: _, ...rest } = request;
  const { rows } = await tx.query<Found>(
    `select id, image, worker_id, disk_mib from snapshots
     where org_id = $1 and id = $2 and status = 'ready' and removed_at is null for share`,
    [orgId, snapshotId],
  );
  if (!rows[0]) throw new ApiError('snapshot_not_found');
  return sourced(rest, rows[0]);
}

interface Found extends Record<string, unknown> {
  id: string;
  image: string;
  worker_id: string;
  disk_mib: number | null;
}

function sourced<Request extends CreateSandboxRequest>(
  rest: Omit<Request, 'image'>,
  { id, image, worker_id: workerId, disk_mib: diskMib }: Found,
): Sourced<Request> {
  const ofImage: OfImage<Request> = { ...rest, image: { type: 'oci', reference: image } };
  return { request: { ...ofImage, ...diskFields(ofImage, diskMib) }, snapshot: { id, workerId } };
}

/** A disk has the size of the one that it was made from: its file system has no room to grow. */
function diskFields(
  { resources }: { resources?: CreateSandboxRequest['resources'] },
  diskMib: number | null,
): { resources?: NonNullable<CreateSandboxRequest['resources']> } {
  const wanted = resources?.disk_size_mib;
  if (diskMib === null || wanted === diskMib) return {};
  if (wanted != null) {
    refuse(
      'resources.disk_size_mib',
      `the disk of the snapshot has ${diskMib} MiB, and cannot be resized: leave the field out, or ask for ${diskMib}`,
    );
  }
  return { resources: { ...resources, disk_size_mib: diskMib } };
}

async function findTemplate(
  tx: Sql,
  values: readonly [orgId: string, labels: string, runtime: string, name: string, tag: string],
): Promise<(Found & { config: TemplateConfig }) | undefined> {
  const { rows } = await tx.query<Found & { config: TemplateConfig }>(
    `select p.id, p.image, p.worker_id, p.disk_mib, t.config
     from templates t join snapshots p on p.org_id = t.org_id and p.id = t.snapshot_id
     where t.org_id = $1 and t.labels @> $2::jsonb and t.runtime = $3 and t.name = $4 and t.tag = $5
       and t.status = 'succeeded' and t.removed_at is null and p.status = 'ready' and p.removed_at is null
     for share of p`,
    [...values],
  );
  return rows[0];
}

/** Only an engine with this ability looks at the snapshot. */
export function onSnapshot(spec: RunSpec, { id }: DiskSnapshot): RunSpec {
  return { ...spec, snapshotId: id, demands: [...spec.demands, 'disk_snapshots'] };
}
