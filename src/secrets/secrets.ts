import { existsSync } from 'node:fs';
import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import { agreeOnSecretKey, setSecretKey } from '../db/instance-queries.js';
import type { Pool, Sql } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import type { WriteTarget } from '../db/write-batch.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import { StartRefusedError } from '../engine/runtime.js';
import type { RunSecrets } from '../spec/run-spec.js';
import { openKeyring, type KeySource } from './key-file.js';
import type { Keyring } from './keyring.js';
import {
  deleteAllSecrets,
  deleteSecrets,
  insertSecrets,
  lockOutdated,
  getSecrets,
  replaceSealed,
  sealingKeys,
  type SecretRow,
} from './queries.js';

/** The name of the registry credentials, which only the first start needs. */
export const REGISTRY = 'registry';
const ENV = 'env:';
const VARIABLE = 'var:';

/** Binds a secret to its row: copied to another row, it does not open. */
function associatedDataOf({ org_id, sandbox_id, name }: Omit<SecretRow, 'sealed'>): string {
  return `${org_id}/${sandbox_id}/${name}`;
}

export async function sealSecrets(
  tx: WriteTarget,
  keyring: () => Keyring,
  orgId: string,
  sandboxId: string,
  { registry, values, env = {} }: RunSecrets,
): Promise<void> {
  const texts = [
    ...(registry ? [[REGISTRY, JSON.stringify(registry)] as const] : []),
    ...Object.entries(values).map(([variable, value]) => [`${ENV}${variable}`, value] as const),
    ...Object.entries(env).map(([variable, value]) => [`${VARIABLE}${variable}`, value] as const),
  ];
  const sealed = texts.map(([name, text]) => {
    const associatedData = associatedDataOf({ org_id: orgId, sandbox_id: sandboxId, name });
    return { name, sealed: keyring().seal(text, associatedData) };
  });
  await insertSecrets(tx, orgId, sandboxId, sealed);
}

/**
 * For secrets of the network. Those that neither have a new value nor are removed stay. Not in a batch, whose one
 * statement would delete and insert the same row.
 */
export async function replaceSecretValues(
  tx: Sql,
  keyring: () => Keyring,
  { orgId, sandboxId }: { orgId: string; sandboxId: string },
  values: Readonly<Record<string, string>>,
  removed: readonly string[],
): Promise<void> {
  for (const name of [...Object.keys(values), ...removed])
    await deleteSecrets(tx, orgId, sandboxId, `${ENV}${name}`);
  await sealSecrets(tx, keyring, orgId, sandboxId, { registry: null, values });
}

/** Returns clear text for the runtime. Throws StartRefusedError when a secret does not open. */
export async function openSecrets(
  sql: Sql,
  keyring: () => Keyring,
  orgId: string,
  sandboxId: string,
): Promise<RunSecrets> {
  const secrets: RunSecrets = { registry: null, values: {} };
  for (const row of await getSecrets(sql, orgId, sandboxId)) {
    const text = open(keyring(), row);
    if (row.name === REGISTRY) secrets.registry = JSON.parse(text) as RunSecrets['registry'];
    else if (row.name.startsWith(VARIABLE)) (secrets.env ??= {})[row.name.slice(VARIABLE.length)] = text;
    else secrets.values[row.name.slice(ENV.length)] = text;
  }
  return secrets;
}

function open(keyring: Keyring, row: SecretRow): string {
  const text = keyring.open(row.sealed, associatedDataOf(row));
  if (text === undefined) {
    throw new StartRefusedError(
      `a secret of the sandbox does not open: add the key ${row.sealed.keyId} that sealed it; if the row was changed, create the sandbox again`,
    );
  }
  return text;
}

/**
 * A getter of the current keys. It throws ExplainedError when their file is missing and the installation has sealed
 * secrets: a new file would be in the place of the right one.
 */
export async function openKnownKeyring(sql: Sql, source: KeySource): Promise<() => Keyring> {
  if (!('file' in source) || existsSync(source.file)) return openKeyring(source);
  const known = await sealingKeys(sql);
  if (known.length === 0) return openKeyring(source);
  return () => {
    throw new ExplainedError(
      `${source.file} is missing, and secrets are sealed under the key ${known.join(' and ')}: put it back from a backup, or copy that of another process; if it is lost, "sandkeep secrets forget" deletes what it sealed (docs/backups.md)`,
    );
  };
}

/** Throws ExplainedError when this service lacks the key under which its installation seals. */
export async function checkKeys(sql: Sql, keyring: Keyring, source: string): Promise<void> {
  const keyId = await agreeOnSecretKey(sql, keyring.currentId);
  if (keyring.has(keyId)) return;
  throw new ExplainedError(
    `secrets of this installation are sealed under the key ${keyId}, which is not in ${source}: copy the keys from where it was installed first; if they are lost, "sandkeep secrets forget" deletes what they sealed`,
  );
}

const BATCH = 200;

export async function resealAll(pool: Pool, keyring: () => Keyring, actor: EventActor): Promise<number> {
  const keys = keyring();
  let count = 0;
  for (;;) {
    const done = await inTransaction(pool, async (tx) => {
      const rows = await lockOutdated(tx, keys.currentId, BATCH);
      for (const row of rows) {
        const text = keys.open(row.sealed, associatedDataOf(row));
        if (text === undefined) {
          throw new ExplainedError(
            `a secret of the sandbox ${row.sandbox_id} was sealed under the key ${row.sealed.keyId}, which is missing: add the key, or delete the sandbox`,
          );
        }
        await replaceSealed(tx, { ...row, sealed: keys.seal(text, associatedDataOf(row)) });
      }
      const at = now();
      for (const [orgId, count] of countByOrg(rows)) {
        const payload = { count, key_id: keys.currentId };
        await recordEvent(tx, { orgId, type: 'secrets_resealed', actor, resourceId: null, at, payload });
      }
      return rows.length;
    });
    count += done;
    if (done < BATCH) return count;
  }
}

export async function forgetAll(pool: Pool, { currentId }: Keyring, actor: EventActor): Promise<number> {
  return inTransaction(pool, async (tx) => {
    const deleted = await deleteAllSecrets(tx);
    await setSecretKey(tx, currentId);
    const at = now();
    for (const [orgId, count] of countByOrg(deleted)) {
      const payload = { count };
      await recordEvent(tx, { orgId, type: 'secrets_forgotten', actor, resourceId: null, at, payload });
    }
    return deleted.length;
  });
}

export function countByOrg(rows: readonly { org_id: string }[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { org_id } of rows) counts.set(org_id, (counts.get(org_id) ?? 0) + 1);
  return counts;
}
