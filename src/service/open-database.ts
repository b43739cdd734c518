import type { buildApp } from '../app.js';
import type { ActiveEventKeys } from '../audit/events/active-keys.js';
import { migrate } from '../db/migrate.js';
import { openForServer, type Database } from '../db/open.js';
import { openPool, type PgPool } from '../db/pool.js';
import { openRequests, type Requests } from '../db/request-connections.js';
import { canServe, HOW_TO_MAKE_IT, REQUEST_ROLE } from '../db/request-role.js';
import type { Startup } from './startup.js';

/** A migration that takes longer has a line in the log. */
const NOTABLE_MS = 1_000;

/** The modules that load while the database starts. */
export interface Modules {
  buildApp: typeof buildApp;
}

/** Loads the web framework while PostgreSQL starts in its own process. */
export async function openDatabase({
  options,
  onStep,
  log,
  resources,
}: Startup): Promise<{ database: Database; modules: Modules }> {
  onStep('opening the database, which the first start creates');
  const opening = openForServer({
    databaseUrl: options.databaseUrl,
    dataDir: options.dataDir,
    command: 'serve',
    walArchiveDir: options.walArchiveDir ?? null,
    onCrash: (error) => log.error({ err: error }, 'the embedded database ended; starting it again'),
  });
  opening.catch(() => undefined);
  const app = await import('../app.js');
  app.warmUp();
  const database = await opening;
  resources.add('the database', () => database.close());
  const begun = performance.now();
  const applied = await migrate(database.address, (migration, ms) => {
    // A first start applies all of them in a moment. A line for each is worth it only when it takes long.
    const level = ms < NOTABLE_MS ? 'debug' : 'info';
    log[level]({ migration, ms }, 'migration applied');
  });
  if (applied.length > 0) {
    const facts = {
      count: applied.length,
      latest: applied.at(-1),
      ms: Math.round(performance.now() - begun),
    };
    log.info(facts, 'migrations applied');
  }
  return { database, modules: { buildApp: app.buildApp } };
}

export async function openPools(
  { log, stopping, resources }: Startup,
  { address }: Database,
  { marker }: ActiveEventKeys,
): Promise<{ pool: PgPool; requests: Requests }> {
  const onBreak = (error: Error) => {
    // Connections that are still opening break when the embedded database stops.
    if (!stopping.aborted) log.warn({ err: error }, 'a database connection broke');
  };
  const pool = openPool(address, onBreak, marker);
  resources.add('the pool', () => pool.end());
  const hasRole = await canServe(pool);
  if (!hasRole) {
    log.warn(
      { role: REQUEST_ROLE, how: HOW_TO_MAKE_IT },
      'the user of the database cannot create the role of requests: only the statements keep organizations apart',
    );
  }
  const requests = openRequests(address, hasRole, onBreak, marker);
  resources.add('the connections for requests', () => requests.close());
  return { pool, requests };
}

export function describeDatabase({ address, server }: Database): string {
  if (!server) return 'external PostgreSQL';
  const found = {
    none: '',
    stopped: '; stopped the server of a killed predecessor',
    stale: '; recovered after a crash',
  };
  return `embedded PostgreSQL in ${'socket' in address ? address.socket : ''}, run by ${server.identity}${found[server.predecessor]}`;
}
