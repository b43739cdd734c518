import { pino, type Logger } from 'pino';
import { ActiveEventKeys } from './audit/events/active-keys.js';
import { operator } from './audit/events/actor.js';
import { type EventKeys } from './audit/events/event-keys.js';
import { activateKeys } from './audit/log/activate-keys.js';
import { SeenHeads, seenHeadsFile } from './audit/log/seen-heads.js';
import { describeEventKeys, eventKeySourceOf, openEventKeys } from './audit/log/signing-key.js';
import { BrokenLog } from './audit/log/verify-head.js';
import type { Config } from './config/options.js';
import { type ServiceContext } from './context.js';
import { listenForChanges } from './db/changes.js';
import { readInstance, setServedRuntime } from './db/instance-queries.js';
import { migrate } from './db/migrate.js';
import { openForServer, type Database } from './db/open.js';
import { openPool, type Pool } from './db/pool.js';
import { canServe, HOW_TO_MAKE_IT, REQUEST_ROLE } from './db/request-role.js';
import { openRequests } from './db/requests.js';
import { listen } from './http/listen.js';
import type { App } from './http/route.js';
import { createKey } from './keys/create.js';
import { Cursors } from './lib/cursor.js';
import { ExplainedError } from './lib/explained-error.js';
import { now } from './lib/instant.js';
import { inTurns, makeLog } from './lib/log.js';
import { sleep } from './lib/sleep.js';
import { createOrg } from './orgs/create.js';
import { hasOrgs } from './orgs/queries.js';
import type { PriceBook } from './prices/price.js';
import { planRuntime } from './runtimes/plan.js';
import { readInstallation } from './runtimes/queries.js';
import type { Capacity, Runtime } from './runtimes/runtime.js';
import type { SimulatedOptions } from './runtimes/simulated/runtime.js';
import { leftToOtherRuntimes } from './sandboxes/reconcile/queries.js';
import { describeSource, keySourceOf, openKeyring } from './secrets/key-file.js';
import { checkKeys } from './secrets/secrets.js';
import { settingsOf, webhookSettings } from './settings.js';
import { notePriceBook } from './usage/price-book-change.js';
import { VolumeStore } from './volumes/storage/store.js';
import { noteReach } from './webhooks/served-reach.js';
import { startWorker } from './worker.js';

/** An orchestrator commonly waits 30 seconds before it kills: by then all has to be in order. */
const REQUESTS_TIMEOUT_MS = 8_000;
const CLOSE_TIMEOUT_MS = 15_000;
const LATE = Symbol('late');

export interface ServiceOptions extends Config {
  /** Serves another runtime than before, although sandboxes of the previous one exist. */
  changeRuntime?: boolean;
}

export interface FirstKey {
  org: { id: string; name: string; slug: string };
  id: string;
  key: string;
}

export interface Service {
  address: string;
  /** A sentence for the operator. */
  database: string;
  runtime: Runtime;
  /** Why the runtime is the simulated one although nobody asked for it. */
  fallback: string | undefined;
  /** Made at the very first start. */
  firstKey: FirstKey | undefined;
  /** Answers what is under way, then closes everything in order. */
  stop(): Promise<void>;
}

/** Everything `sandkeep serve` is, started in order; what was opened is closed again when a later step fails. */
export async function startService(options: ServiceOptions): Promise<Service> {
  const log = makeLog(options.logLevel, inTurns(pino.destination({ fd: 2, sync: true })));
  const opened: { what: string; close: () => Promise<unknown> }[] = [];
  const stopping = new AbortController();

  async function stop(): Promise<void> {
    stopping.abort();
    for (const { what, close } of opened.splice(0).toReversed()) {
      await inTime(what, close()).catch((error: unknown) => log.error({ err: error }, 'closing failed'));
    }
  }

  try {
    const priceBook = await readPriceBook(options);
    // PostgreSQL starts in a process of its own; the web framework is loaded meanwhile.
    const opening = openForServer({
      databaseUrl: options.databaseUrl,
      dataDir: options.dataDir,
      command: 'serve',
      onCrash: (error) => log.error({ err: error }, 'the embedded database ended; starting it again'),
    });
    opening.catch(() => undefined);
    const [{ buildApp, warmUp }, { openRuntime }] = await Promise.all([
      import('./app.js'),
      import('./runtimes/choose.js'),
    ]);
    warmUp();
    const database = await opening;
    opened.push({ what: 'the database', close: () => database.close() });
    await migrate(database.address, (migration, ms) => log.info({ migration, ms }, 'migration applied'));
    const onBreak = (error: Error) => {
      // Connections that are just opening break when the embedded database stops in order.
      if (!stopping.signal.aborted) log.warn({ err: error }, 'a database connection broke');
    };
    const activeKeys = new ActiveEventKeys(() => {
      throw new Error('an event was recorded before the event keys were registered');
    });
    const pool = openPool(database.address, onBreak, activeKeys.marker);
    opened.push({ what: 'the pool', close: () => pool.end() });
    const apart = await areApart(pool, log);
    const requests = openRequests(database.address, apart, onBreak, activeKeys.marker);
    opened.push({ what: 'the connections for requests', close: () => requests.close() });

    const seenHeads = new SeenHeads(seenHeadsFile(options));
    const eventKeys = await openKeysOfLog({ pool, activeKeys }, options);
    await notePriceBook(pool, priceBook);
    noteReachFor(options, log);
    const instance = await readInstance(pool);
    const volumes = await openVolumes(options);
    const keySource = keySourceOf(options);
    const keyring = openKeyring(keySource);
    // What is wrong with the keys is said now, and not at the first secret.
    await checkKeys(pool, keyring(), describeSource(keySource));
    const plan = planRuntime(
      { choice: options.runtime, change: options.changeRuntime ?? false },
      await readInstallation(pool),
    );
    const { runtime, fallback } = await openRuntime(
      plan,
      {
        dockerSocket: options.dockerSocket,
        dockerNetwork: options.dockerNetwork,
        dockerRuntime: options.dockerRuntime,
        dockerAllow: options.dockerAllow,
        dataDir: options.dataDir,
        volumes,
        instanceId: instance.id,
        capacity: capacityOf(options),
        simulated: simulatedOf(options),
      },
      log,
    );
    opened.push({ what: 'the runtime', close: () => runtime.close() });
    await setServedRuntime(pool, runtime.name);
    for (const { name, count } of await leftToOtherRuntimes(pool, runtime.name)) {
      log.warn(
        { otherRuntime: name, count },
        'sandboxes of another runtime stay as they are until it is served again',
      );
    }
    const changes = listenForChanges(database.address, (error) =>
      log.warn({ err: error }, 'the connection for notifications broke'),
    );
    opened.push({ what: 'notifications', close: () => changes.close() });

    const ctx: ServiceContext = {
      ...{ pool, reads: pool, requests, runtime, volumes, changes, now, log, keyring },
      ...{ eventKeys, activeKeys, seenHeads },
      cursors: new Cursors(instance.cursorKey),
      stopping: stopping.signal,
      settings: settingsOf(options, priceBook),
    };
    const app = await buildApp(ctx);
    const worker = startWorker(ctx);
    opened.push({ what: 'the worker', close: () => worker.stop() });
    opened.push({ what: 'the API', close: () => closeApp(app) });
    const address = await listen(app, options).catch((cause: unknown) => {
      throw explainListenError(cause, options);
    });
    const firstKey = await makeFirstKey(pool);
    return { address, database: describe(database), runtime, fallback, firstKey, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Who writes under other keys than those of the log leaves events in it that look like those of an intruder, for ever. */
async function openKeysOfLog(
  ctx: { pool: Pool; activeKeys: ActiveEventKeys },
  options: ServiceOptions,
): Promise<() => EventKeys> {
  const source = eventKeySourceOf(options);
  const eventKeys = openEventKeys(source);
  await activateKeys(ctx, eventKeys(), now()).catch((cause: unknown) => {
    if (!(cause instanceof BrokenLog)) throw cause;
    throw new ExplainedError(
      `${cause.message}: give this process the keys of the others, in ${describeEventKeys(source)}; in place of one that is lost, its public half behind the key there ("public …", as "sandkeep events key" printed it)`,
      { cause },
    );
  });
  return eventKeys;
}

/** Whether the database keeps organizations apart in the sessions of requests. */
async function areApart(pool: Pool, log: Logger): Promise<boolean> {
  const apart = await canServe(pool);
  if (!apart) {
    log.warn(
      { how: HOW_TO_MAKE_IT },
      `the user of the database may not make the role ${REQUEST_ROLE}: organizations are kept apart by the statements alone`,
    );
  }
  return apart;
}

/** Before anything is opened: whoever changed the file wants to know at once whether it is right. */
async function readPriceBook({ priceBook }: ServiceOptions): Promise<PriceBook | null> {
  if (priceBook === undefined) return null;
  const { loadPriceBook } = await import('./prices/price-book.js');
  return loadPriceBook(priceBook);
}

function capacityOf(options: ServiceOptions): Partial<Capacity> {
  const { capacityVcpus: vcpus, capacityMemoryMib: memoryMib, capacityDiskMib: diskMib } = options;
  return {
    ...(vcpus === undefined ? {} : { vcpus }),
    ...(memoryMib === undefined ? {} : { memoryMib }),
    ...(diskMib === undefined ? {} : { diskMib }),
  };
}

function simulatedOf(options: ServiceOptions): SimulatedOptions {
  const { simulatedStartMs: startMs, simulatedStopMs: stopMs, simulatedFailures: percent } = options;
  const failStart = () => (Math.random() * 100 < percent ? 'a simulated failure' : undefined);
  return { startMs, stopMs, failStart };
}

/** Throws when the work is not done in time; it goes on, but nobody waits for it any more. */
async function inTime(what: string, work: Promise<unknown>): Promise<void> {
  const patience = new AbortController();
  const outcome = await Promise.race([work, sleep(CLOSE_TIMEOUT_MS, patience.signal).then(() => LATE)]);
  patience.abort();
  if (outcome === LATE) throw new Error(`${what} did not close within ${CLOSE_TIMEOUT_MS / 1000} s`);
}

/** Finishes what is under way; who does not get on with a request within the time is cut off. */
async function closeApp(app: App): Promise<void> {
  const cut = setTimeout(() => app.server.closeAllConnections(), REQUESTS_TIMEOUT_MS);
  await app.close();
  clearTimeout(cut);
}

async function openVolumes({ volumesDir }: ServiceOptions): Promise<VolumeStore> {
  const volumes = new VolumeStore(volumesDir);
  await volumes.prepare().catch((cause: unknown) => {
    throw new ExplainedError(
      `the directory ${volumesDir} for the data of volumes cannot be used (${(cause as Error).message}): choose another with --volumes-dir`,
      { cause },
    );
  });
  return volumes;
}

/** For commands. The service itself does not need it. */
function noteReachFor(options: ServiceOptions, log: Logger): void {
  try {
    noteReach(options.dataDir, webhookSettings(options).reach);
  } catch (error) {
    log.warn({ err: error }, 'cannot note for commands which addresses webhooks may lead to');
  }
}

/** A new installation has an organization and a key to begin with. */
async function makeFirstKey(pool: Pool): Promise<FirstKey | undefined> {
  if (await hasOrgs(pool)) return undefined;
  const actor = operator('serve');
  const org = await createOrg(pool, { name: 'Default', slug: 'default' }, actor);
  return { org, ...(await createKey(pool, org.id, 'first key', actor)) };
}

function describe({ address, server }: Database): string {
  if (!server) return 'external PostgreSQL';
  const found = {
    none: '',
    stopped: '; stopped the one a killed predecessor left',
    stale: '; recovered after a crash',
  };
  return `embedded PostgreSQL in ${'socket' in address ? address.socket : ''}, run by ${server.identity}${found[server.predecessor]}`;
}

function explainListenError(cause: unknown, { host, port }: ServiceOptions): unknown {
  switch ((cause as NodeJS.ErrnoException).code) {
    case 'EADDRINUSE':
      return new ExplainedError(
        `port ${port} on ${host} is taken: choose another with --port, or 0 for a free one`,
        { cause },
      );
    case 'EACCES':
      return new ExplainedError(
        `port ${port} on ${host} is not allowed to this user: choose one above 1023`,
        { cause },
      );
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
      return new ExplainedError(`${host} is not an address of this machine: choose another with --host`, {
        cause,
      });
    default:
      return cause;
  }
}
