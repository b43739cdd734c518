import type { ActiveEventKeys } from '../audit/events/active-keys.js';
import type { EventKeys } from '../audit/events/event-keys.js';
import { activateKeys, requireKeyFile } from '../audit/log/activate-keys.js';
import { describeEventKeys, eventKeySourceOf, openEventKeys } from '../audit/log/signing-key.js';
import { BrokenLog } from '../audit/log/verify-head.js';
import type { PgPool } from '../db/pool.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import { describeSource, keySourceOf } from '../secrets/key-file.js';
import type { Keyring } from '../secrets/keyring.js';
import { checkKeys, openKnownKeyring } from '../secrets/secrets.js';
import type { ServiceOptions } from './startup.js';

/** Events under other keys than those of the log would look forged for ever. */
export async function openKeysOfLog(
  ctx: { pool: PgPool; activeKeys: ActiveEventKeys },
  options: ServiceOptions,
): Promise<() => EventKeys> {
  const source = eventKeySourceOf(options);
  await requireKeyFile(ctx.pool, source);
  const eventKeys = openEventKeys(source);
  await activateKeys(ctx, eventKeys(), now()).catch((cause: unknown) => {
    if (!(cause instanceof BrokenLog)) throw cause;
    throw new ExplainedError(
      `${cause.message}: copy the event keys of the other processes to ${describeEventKeys(source)}; for a lost key, append its public half there ("public …", as "sandkeep events key" printed it)`,
      { cause },
    );
  });
  return eventKeys;
}

/** A wrong key fails the start, not the first secret. */
export async function openSecretKeys(pool: PgPool, options: ServiceOptions): Promise<() => Keyring> {
  const source = keySourceOf(options);
  const keyring = await openKnownKeyring(pool, source);
  await checkKeys(pool, keyring(), describeSource(source));
  return keyring;
}
