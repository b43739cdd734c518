import type { Pool } from '../db/pool.js';
import type { ImageAccess } from '../runtimes/docker/images/image-access.js';
import { findImageAccess, recordImageAccess } from './queries.js';

/** An organization that uses more references proves its access again, for those that it has not used for longest. */
export const MAX_REFERENCES = 1_000;

export function storedImageAccess(pool: Pool): ImageAccess {
  return {
    find: (orgId, reference) => findImageAccess(pool, orgId, reference),
    record: (orgId, reference, digest) =>
      recordImageAccess(pool, orgId, { reference, digest }, MAX_REFERENCES),
  };
}
