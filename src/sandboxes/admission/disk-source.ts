import type { Caller } from '../../access/caller.js';
import type { Sql } from '../../db/pool.js';
import type { Runtime } from '../../engine/runtime.js';
import { ApiError } from '../../http/errors.js';
import type { RunSpec } from '../../spec/run-spec.js';
import type { CreateSandboxRequest } from '../../spec/specification.js';

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

export type OfImage<Request extends CreateSandboxRequest> = Omit<Request, 'image'> & {
  image: { type: 'oci'; reference: string };
};

/** The snapshot that a disk is made from, and the engine that has it. */
export interface DiskSnapshot {
  id: string;
  workerId: string;
}

/**
 * Replaces a snapshot in a request by the image below it. The lock keeps the snapshot until the sandbox is in the
 * store. Throws `snapshot_not_found`.
 */
export async function withDiskSource<Request extends CreateSandboxRequest>(
  tx: Sql,
  { orgId, access }: Caller,
  request: Request,
  { name: runtime }: Pick<Runtime, 'name'>,
): Promise<{ request: OfImage<Request>; snapshot: DiskSnapshot | null }> {
  const { image, ...rest } = request;
  if (image.type === 'oci') return { request: { ...rest, image }, snapshot: null };
  const { rows } = await tx.query<{ id: string; image: string; worker_id: string }>(
    `select id, image, worker_id from snapshots
     where org_id = $1 and labels @> $2::jsonb and runtime = $3 and status = 'ready' and removed_at is null
       and (id = $4::uuid or name = $5)
     for share`,
    [orgId, JSON.stringify(access.labels), runtime, UUID.test(image.id) ? image.id : null, image.id],
  );
  const [found] = rows;
  if (!found) {
    throw new ApiError('snapshot_not_found', `there is no snapshot "${image.id}" that is ready`, {
      field: 'image.id',
    });
  }
  const source = { type: 'oci' as const, reference: found.image };
  return { request: { ...rest, image: source }, snapshot: { id: found.id, workerId: found.worker_id } };
}

/** Only an engine with this ability looks at the snapshot. */
export function onSnapshot(spec: RunSpec, { id }: DiskSnapshot): RunSpec {
  return { ...spec, snapshotId: id, demands: [...spec.demands, 'disk_snapshots'] };
}
