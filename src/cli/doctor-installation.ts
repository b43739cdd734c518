import { registeredKeyIds } from '../audit/log/key-queries.js';
import { findDataDirectory } from '../db/embedded/directory.js';
import { askOwner } from '../db/embedded/ownership.js';
import { readInstance } from '../db/instance-queries.js';
import { isMigrated } from '../db/migrate.js';
import { openForCommand } from '../db/open.js';
import { openPool, type Address } from '../db/pool.js';
import type { Installation } from '../engines/plan.js';
import { readInstallation } from '../engines/queries.js';
import { countPasskeys } from '../people/passkeys/queries.js';
import { sealingKeys } from '../secrets/queries.js';
import type { CommonOptions } from './command.js';

export interface StoredInstallation extends Installation {
  instanceId: string;
  /** Ids of the keys that seal secrets, and of the keys that sign the event log. */
  keys: { secrets: string[]; events: string[] };
  /** The passkeys of members. */
  passkeys: number;
}

/** Undefined without a database that runs and has an installation. Does not start the embedded database. */
export async function readStored(options: CommonOptions): Promise<StoredInstallation | undefined> {
  const address = await runningDatabase(options);
  if (!address) return undefined;
  const pool = openPool(address, () => undefined);
  try {
    if (!(await isMigrated(pool))) return undefined;
    return {
      ...(await readInstallation(pool)),
      instanceId: (await readInstance(pool)).id,
      keys: { secrets: await sealingKeys(pool), events: await registeredKeyIds(pool) },
      passkeys: await countPasskeys(pool),
    };
  } finally {
    await pool.end();
  }
}

async function runningDatabase({ dataDir, databaseUrl }: CommonOptions): Promise<Address | undefined> {
  if (databaseUrl !== undefined)
    return (await openForCommand({ databaseUrl, dataDir, command: 'doctor' })).address;
  const directory = findDataDirectory(dataDir);
  const owner = directory && (await askOwner(directory));
  return owner?.command === 'serve' ? { socket: directory!.run } : undefined;
}
