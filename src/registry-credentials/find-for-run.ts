import type { Sql } from '../db/pool.js';
import { StartRefusedError } from '../engine/runtime.js';
import type { Keyring } from '../secrets/keyring.js';
import type { RunSecrets, RunSpec } from '../spec/run-spec.js';
import { openPassword } from './password.js';
import { patternsOf } from './pattern.js';
import { findMatching, getCredential } from './queries.js';

/**
 * The stored credential with which the image of a run is pulled. Null: none matches, none is needed, or the request
 * wants none. Throws StartRefusedError when the named one is gone or is for other images, or when the password cannot
 * be read.
 */
export async function findForRun(
  sql: Sql,
  keyring: () => Keyring,
  orgId: string,
  { image, snapshotId, registryAccess: access }: Pick<RunSpec, 'image' | 'snapshotId' | 'registryAccess'>,
): Promise<RunSecrets['registry']> {
  // Nothing is pulled for the disk of a snapshot.
  if (snapshotId !== undefined || access?.mode === 'anonymous') return null;
  const patterns = patternsOf(image);
  const row =
    access?.mode === 'specific'
      ? await getCredential(sql, orgId, access.credential_id)
      : await findMatching(sql, orgId, patterns);
  if (!row) {
    if (access?.mode !== 'specific') return null;
    throw new StartRefusedError(
      `the registry credential ${access.credential_id} of the sandbox was deleted: create the sandbox again with another`,
    );
  }
  // Creates are refused with such a credential. Earlier releases took them.
  if (!patterns.includes(row.pattern)) {
    throw new StartRefusedError(
      `the registry credential of the sandbox is for images of ${row.pattern}, and the image is ${image}: create the sandbox again with another`,
    );
  }
  const password = row.sealed && openPassword(keyring(), row, row.sealed);
  if (password == null) {
    throw new StartRefusedError(
      `the password of the registry credential for ${row.pattern} cannot be read: set it again`,
    );
  }
  return { username: row.username, password };
}
