/**
 * The authority of an installation for the interception of TLS. It is made at its first use. Its key is sealed as the
 * secrets of sandboxes are.
 */
import { createHash } from 'node:crypto';
import type { Sql } from '../db/pool.js';
import type { Authority } from '../gateway/protocol.js';
import { ExplainedError } from '../lib/explained-error.js';
import {
  clearAuthority,
  lockAuthority,
  insertAuthority,
  readAuthority,
  replaceAuthority,
  type AuthorityRow,
} from './authority-queries.js';
import type { Keyring } from './keyring.js';

/** Binds the key to its certificate. */
function associatedDataOf(certificate: string): string {
  return `network-authority/${createHash('sha256').update(certificate).digest('hex')}`;
}

/** Returns the key in clear, for the gateway. Throws ExplainedError when it does not open. */
export async function openNetworkAuthority(sql: Sql, keyring: () => Keyring): Promise<Authority> {
  const known = await readAuthority(sql);
  if (known) return open(known, keyring());
  await insertAuthority(sql, await makeSealed(keyring()));
  // Another process may have been first.
  return open((await readAuthority(sql))!, keyring());
}

/** PEM, of the certificate only. It is made when there is none. */
export async function showNetworkAuthority(sql: Sql, keyring: () => Keyring): Promise<string> {
  const known = await readAuthority(sql);
  return known?.certificate ?? (await openNetworkAuthority(sql, keyring)).certificate;
}

/** Replaces it, also one whose key does not open any more. Returns the certificate of the new one as PEM. */
export async function rotateNetworkAuthority(sql: Sql, keyring: () => Keyring): Promise<string> {
  const row = await makeSealed(keyring());
  await replaceAuthority(sql, row);
  return row.certificate;
}

/** Seals the key again when it is sealed under an older one. Returns the number of keys. */
export async function resealNetworkAuthority(tx: Sql, keyring: Keyring): Promise<number> {
  const row = await lockAuthority(tx);
  if (!row || row.sealed.keyId === keyring.currentId) return 0;
  const { key } = open(row, keyring);
  await replaceAuthority(tx, seal({ certificate: row.certificate, key }, keyring));
  return 1;
}

/** Deletes it after its key was lost. The next use makes another one. */
export const forgetNetworkAuthority = clearAuthority;

async function makeSealed(keyring: Keyring): Promise<AuthorityRow> {
  // Most installations never make one.
  const { makeAuthority } = await import('../gateway/intercept/certificate.js');
  return seal(makeAuthority(new Date().toISOString().slice(0, 10)), keyring);
}

function seal({ certificate, key }: Authority, keyring: Keyring): AuthorityRow {
  return { certificate, sealed: keyring.seal(key, associatedDataOf(certificate)) };
}

function open({ certificate, sealed }: AuthorityRow, keyring: Keyring): Authority {
  const key = keyring.open(sealed, associatedDataOf(certificate));
  if (key === undefined) {
    throw new ExplainedError(
      `the key of the network authority was sealed under the key ${sealed.keyId}, which is missing: add the key, or make another authority with "sandkeep network authority rotate"`,
    );
  }
  return { certificate, key };
}
