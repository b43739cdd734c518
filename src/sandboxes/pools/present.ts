import { shortInstant } from '../../lib/instant.js';
import type { CountedPool, Member } from './queries.js';
import type { PoolResponse, PoolWithSandboxes } from './schema.js';

export function presentPool(pool: CountedPool): PoolResponse {
  const { id, name, run_spec, spec, image_digest, size, most, ready, starting, given } = pool;
  return {
    id,
    name,
    image: run_spec.image,
    pull_policy: run_spec.pullPolicy,
    image_digest,
    resources: spec.resources,
    network: spec.network,
    size,
    most,
    ready,
    starting,
    given,
    last_failure_message: pool.last_failure_message,
    created_at: shortInstant(pool.created_at),
    updated_at: shortInstant(pool.updated_at),
  };
}

export function presentWithSandboxes(pool: CountedPool, members: readonly Member[]): PoolWithSandboxes {
  const sandboxes = members.map(({ id, name, status, started_at, image_digest }) => ({
    id,
    name,
    status,
    started_at: started_at && shortInstant(started_at),
    image_digest,
  }));
  return { ...presentPool(pool), sandboxes };
}
