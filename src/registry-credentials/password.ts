import type { Keyring, Sealed } from '../secrets/keyring.js';
import type { CredentialRow } from './queries.js';

type Owner = Pick<CredentialRow, 'org_id' | 'id'>;

/** Binds a sealed password to its credential: it cannot be opened in another row. */
function associatedData({ org_id, id }: Owner): string {
  return `${org_id}/registry/${id}`;
}

export function sealPassword(keyring: Keyring, owner: Owner, password: string): Sealed {
  return keyring.seal(password, associatedData(owner));
}

/** Undefined: its key is missing, or the row was changed. */
export function openPassword(keyring: Keyring, owner: Owner, sealed: Sealed): string | undefined {
  return keyring.open(sealed, associatedData(owner));
}
