import { pino, type Logger } from 'pino';
import type { buildApp } from './app.js';
import { ActiveEventKeys } from './audit/events/active-keys.js';
import { type EventKeys } from './audit/events/event-keys.js';
import { activateKeys, requireKeyFile } from './audit/log/activate-keys.js';
import { SeenHeads, seenHeadsFile } from './audit/log/seen-heads.js';
import { describeEventKeys, eventKeySourceOf, openEventKeys } from './audit/log/signing-key.js';
import { BrokenLog } from './audit/log/verify-head.js';
import type { Config } from './config/options.js';
import { type ServiceContext } from './context.js';
import { listenForChanges } from './db/changes.js';
import { readInstance, setServedRuntime } from './db/instance-queries.js';
import { migrate } from './db/migrate.js';
import { openForServer, type Database } from './db/open.js';
import { openPool, type PgPool } from './db/pool.js';
import { canServe, HOW_TO_MAKE_IT, REQUEST_ROLE } from './db/request-role.js';
import { openRequests, type Requests } from './db/request-connections.js';
import { DiskReserve } from './disk/disk-reserve.js';
import { closeOthers, listen, NO_HOST, reachableAt, type Place } from './http/listen.js';
import type { App } from './http/route.js';
import { Certificate } from './http/tls/certificate.js';
import { readAuthorities } from './http/tls/key-pair.js';
import { storedImageAccess } from './images/stored-access.js';
import { createFirstKey, type FirstKey } from './keys/first-key.js';
import { BoundedSet } from './lib/bounded-set.js';
import { Cursors } from './lib/cursor.js';
import { ExplainedError } from './lib/explained-error.js';
import { now } from './lib/instant.js';
import { NO_METERS } from './lib/meters.js';
import { batchedByTurn, makeLog, withCopy } from './lib/log.js';
import { RecentTouches } from './lib/recent-touches.js';
import { Resources } from './lib/resources.js';
import { sleep } from './lib/sleep.js';
import type { Metrics } from './metrics/open-metrics.js';
import type { PriceBook } from './prices/price.js';
import type { openRuntime } from './runtimes/choose.js';
import { planRuntime } from './runtimes/plan.js';
import { readInstallation } from './runtimes/queries.js';
import type { Capacity, Runtime } from './runtimes/runtime.js';
import type { SimulatedOptions } from './runtimes/simulated/runtime.js';
import { leftToOtherRuntimes } from './sandboxes/reconcile/queries.js';
import { describeSource, keySourceOf } from './secrets/key-file.js';
import type { Keyring } from './secrets/keyring.js';
import { checkKeys, openKnownKeyring } from './secrets/secrets.js';
import { registryReach, settingsOf, webhookSettings } from './settings.js';
import type { Telemetry } from './telemetry/open-telemetry.js';
import { openConfigured, superviseExport } from './telemetry/start.js';
import { recordPriceBook } from './usage/record-price-book.js';
import { VolumeStore } from './volumes/storage/store.js';
import { saveDestinationPolicy } from './webhooks/destination-policy.js';
import { startWorker } from './worker.js';
import { makePeer } from './workers/peer.js';

/** Orchestrators commonly kill a process 30 seconds after they ask it to stop. */
const REQUESTS_TIMEOUT_MS = 8_000;
const CLOSE_TIMEOUT_MS = 15_000;
/** Several scrapers share a measurement. */
const METRICS_FRESH_MS = 5_000;

export interface ServiceOptions extends Config {
  /** Serves another runtime than before, although sandboxes of the previous one exist. */
  changeRuntime?: boolean;
}

export interface Service {
  address: string;
  metricsAddress: string | undefined;
  /** A sentence for the operator. */
  database: string;
  runtime: Runtime;
  /** The reason for the simulated runtime where the operator did not choose it. */
  fallback: string | undefined;
  /** Only after the first start of an installation. */
  firstKey: FirstKey | undefined;
  /** Answers the open requests, then closes everything. */
  stop(): Promise<void>;
  /** Reads the files of the TLS certificate now. Undefined: HTTP without TLS. */
  reload: (() => void) | undefined;
}

/** The parts that every step of the start uses. */
interface Startup {
  options: ServiceOptions;
  log: Logger;
  stopping: AbortSignal;
  draining: AbortSignal;
  resources: Resources;
  metrics: Metrics | undefined;
  telemetry: Telemetry | undefined;
}

/** Starts `sandkeep serve`. A step that fails closes the resources of the steps so far. */
export async function startService(options: ServiceOptions): Promise<Service> {
  const metrics = await openMetricsFor(options);
  const telemetry = await openConfigured(options, metrics?.meters ?? NO_METERS);
  const destination = batchedByTurn(pino.destination({ fd: 2, sync: true }));
  const log = makeLog(options.logLevel, withCopy(destination, telemetry?.addLine));
  const resources = new Resources(CLOSE_TIMEOUT_MS, (error) => log.error({ err: error }, 'closing failed'));
  const [draining, stopping] = [new AbortController(), new AbortController()];
  if (telemetry) superviseExport(telemetry, log, resources);
  const close = async () => {
    stopping.abort();
    await resources.closeAll();
  };
  const stop = async () => {
    draining.abort();
    await sleep(options.drainSeconds * 1_000);
    await close();
  };
  try {
    const signals = { stopping: stopping.signal, draining: draining.signal };
    const startup = { options, log, resources, metrics, telemetry, ...signals };
    return { ...(await start(startup)), stop };
  } catch (error) {
    await close();
    throw error;
  }
}

async function start(startup: Startup): Promise<Omit<Service, 'stop'>> {
  const { options, log, stopping, draining, resources, metrics, telemetry } = startup;
  const certificate = openCertificate(startup);
  const authorities = readForwardCa(options);
  const priceBook = await readPriceBook(options);
  const { database, modules } = await openDatabase(startup);
  const activeKeys = new ActiveEventKeys(() => {
    throw new Error('an event was recorded before the event keys were registered');
  });
  const { pool, requests } = await openPools(startup, database, activeKeys);
  const instance = await readInstance(pool);

  const seenHeads = new SeenHeads(seenHeadsFile(options));
  const eventKeys = await openKeysOfLog({ pool, activeKeys }, options);
  const keyring = await openSecretKeys(pool, options);
  await recordPriceBook(pool, priceBook);
  noteReachFor(options, log);

  const volumes = await openVolumes(options);
  const disk = new DiskReserve({
    pathOf: (place) =>
      ({ data: options.dataDir, volumes: options.volumesDir, engine: runtime.diskPath })[place],
    reserveMib: options.diskReserveMib,
    hasOwnDatabase: database.server !== undefined,
  });
  const { runtime, fallback } = await openServedRuntime(startup, modules, pool, instance.id, volumes, disk);
  const changes = listenForChanges(database.address, (error) =>
    log.warn({ err: error }, 'the connection for notifications broke'),
  );
  resources.add('notifications', () => changes.close());

  await disk.start((error) => log.error({ err: error }, 'the disks cannot be measured'));
  resources.add('the measurement of disks', () => disk.stop());

  const ctx: ServiceContext = {
    ...{ disk, pool, reads: pool, requests, runtime, volumes, changes, now, log, keyring },
    ...{ eventKeys, activeKeys, seenHeads, roomyQuotas: new BoundedSet() },
    ...{
      stopping,
      draining,
      certificate,
      cursors: new Cursors(instance.cursorKey),
      settings: settingsOf(options, priceBook),
    },
    peer: makePeer(instance.cursorKey, options.advertiseUrl, authorities),
    touches: new RecentTouches(),
    meters: metrics?.meters ?? NO_METERS,
    tracing: telemetry?.tracing,
  };
  const app = await modules.buildApp(ctx, {
    observe: metrics?.observe,
    onlyForwarded: options.role === 'worker',
  });
  if (options.role !== 'api') {
    const worker = startWorker(ctx);
    resources.add('the worker', () => worker.stop());
  }
  resources.add('the API', () => closeApp(app));
  const address = await listen(app, placeOf(options)).catch((cause: unknown) => {
    throw explainListenError(cause, options, ['--host', '--port']);
  });
  ctx.peer.address ??= reachableAt(address);
  const metricsAddress = metrics && (await listenForScrapes(metrics, ctx, startup));
  const firstKey = await createFirstKey(pool);
  if (options.role !== 'api') await startBackups(ctx, instance.id, startup);
  const reload = certificate && (() => certificate.reload());
  return { address, metricsAddress, database: describe(database), runtime, fallback, firstKey, reload };
}

function openCertificate({ options, log, resources }: Startup): Certificate | undefined {
  const { tlsCert: cert, tlsKey: key } = options;
  if (cert === undefined && key === undefined) return undefined;
  if (cert === undefined || key === undefined) {
    throw new ExplainedError('TLS needs both files: give --tls-cert and --tls-key');
  }
  const certificate = new Certificate({ cert, key }, log);
  certificate.watch();
  resources.add('the look at the certificate', async () => Promise.resolve(certificate.close()));
  return certificate;
}

function readForwardCa({ forwardCa }: ServiceOptions): string[] | undefined {
  return forwardCa === undefined ? undefined : readAuthorities(forwardCa, '--forward-ca');
}

function placeOf({ host, port, listenUnix: path, listenUnixMode, tlsCert }: ServiceOptions): Place {
  if (host === NO_HOST && path === undefined) {
    throw new ExplainedError(`--host ${NO_HOST} needs the path of a socket: give --listen-unix`);
  }
  const unix = path === undefined ? undefined : { path, mode: parseInt(listenUnixMode, 8) };
  return { host, port, unix, isTls: tlsCert !== undefined };
}

/** The module is loaded for a schedule only. Throws ExplainedError for a wrong directory or key. */
async function startBackups(
  ctx: ServiceContext,
  instanceId: string,
  { options, resources }: Startup,
): Promise<void> {
  if (options.backupDir === undefined) return;
  const { startScheduledBackups } = await import('./backup/schedule.js');
  const backups = await startScheduledBackups(ctx, {
    ...{ directory: options.backupDir, keep: options.backupKeep, encryptTo: options.backupEncryptTo },
    ...{ instanceId, places: options },
  });
  resources.add('the scheduled backups', () => backups.stop());
}

async function openMetricsFor({ metricsPort, metricsByOrg }: ServiceOptions): Promise<Metrics | undefined> {
  if (metricsPort === undefined) return undefined;
  const { openMetrics } = await import('./metrics/open-metrics.js');
  return openMetrics({ byOrg: metricsByOrg, freshMs: METRICS_FRESH_MS });
}

async function listenForScrapes(
  metrics: Metrics,
  ctx: ServiceContext,
  { options, resources }: Startup,
): Promise<string> {
  const { serveMetrics } = await import('./metrics/serve.js');
  const place = { host: options.metricsHost, port: options.metricsPort! };
  const { url, close } = await serveMetrics(metrics, ctx, place).catch((cause: unknown) => {
    throw explainListenError(cause, place, ['--metrics-host', '--metrics-port']);
  });
  resources.add('the metrics', close);
  return url;
}

/** The modules that load while the database starts. */
interface Modules {
  buildApp: typeof buildApp;
  openRuntime: typeof openRuntime;
}

/** Loads the web framework while PostgreSQL starts in its own process. */
async function openDatabase({
  options,
  log,
  resources,
}: Startup): Promise<{ database: Database; modules: Modules }> {
  const opening = openForServer({
    ...{ databaseUrl: options.databaseUrl, dataDir: options.dataDir, command: 'serve' },
    onCrash: (error) => log.error({ err: error }, 'the embedded database ended; starting it again'),
  });
  opening.catch(() => undefined);
  const [app, runtimes] = await Promise.all([import('./app.js'), import('./runtimes/choose.js')]);
  app.warmUp();
  const database = await opening;
  resources.add('the database', () => database.close());
  await migrate(database.address, (migration, ms) => log.info({ migration, ms }, 'migration applied'));
  return { database, modules: { buildApp: app.buildApp, openRuntime: runtimes.openRuntime } };
}

async function openPools(
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

/** Events under other keys than those of the log would look forged for ever. */
async function openKeysOfLog(
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
async function openSecretKeys(pool: PgPool, options: ServiceOptions): Promise<() => Keyring> {
  const source = keySourceOf(options);
  const keyring = await openKnownKeyring(pool, source);
  await checkKeys(pool, keyring(), describeSource(source));
  return keyring;
}

async function openServedRuntime(
  { options, log, resources }: Startup,
  { openRuntime }: Modules,
  pool: PgPool,
  instanceId: string,
  volumes: VolumeStore,
  disk: DiskReserve,
): Promise<{ runtime: Runtime; fallback: string | undefined }> {
  const plan = planRuntime(
    { choice: options.runtime, change: options.changeRuntime ?? false },
    await readInstallation(pool),
  );
  const { runtime, fallback } = await openRuntime(
    plan,
    {
      ...{ ...options, volumes, instanceId, capacity: capacityOf(options), simulated: simulatedOf(options) },
      pulls: {
        reach: registryReach(options),
        access: storedImageAccess(pool),
        maxMib: options.imageMaxMib,
        maxMibOfOrg: options.orgImagesMaxMib,
        disk,
      },
    },
    log,
  );
  resources.add('the runtime', () => runtime.close());
  await setServedRuntime(pool, runtime.name);
  for (const { name, count } of await leftToOtherRuntimes(pool, runtime.name)) {
    log.warn(
      { otherRuntime: name, count },
      'sandboxes of another runtime stay as they are until it is served again',
    );
  }
  return { runtime, fallback };
}

/** The module is loaded for a price book only. */
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

/** Waits for the open requests, and cuts off those that take too long. */
async function closeApp(app: App): Promise<void> {
  const cut = setTimeout(() => app.server.closeAllConnections(), REQUESTS_TIMEOUT_MS);
  await app.close();
  await closeOthers(app);
  clearTimeout(cut);
}

async function openVolumes({ volumesDir }: ServiceOptions): Promise<VolumeStore> {
  const volumes = new VolumeStore(volumesDir);
  await volumes.prepare().catch((cause: unknown) => {
    throw new ExplainedError(
      `cannot use the directory ${volumesDir} for the data of volumes (${(cause as Error).message}): choose another with --volumes-dir`,
      { cause },
    );
  });
  return volumes;
}

/** Commands judge addresses by the note; the service does not need it. */
function noteReachFor(options: ServiceOptions, log: Logger): void {
  try {
    saveDestinationPolicy(options.dataDir, webhookSettings(options).reach);
  } catch (error) {
    log.warn({ err: error }, 'cannot store the reach of webhooks for commands');
  }
}

function describe({ address, server }: Database): string {
  if (!server) return 'external PostgreSQL';
  const found = {
    none: '',
    stopped: '; stopped the server of a killed predecessor',
    stale: '; recovered after a crash',
  };
  return `embedded PostgreSQL in ${'socket' in address ? address.socket : ''}, run by ${server.identity}${found[server.predecessor]}`;
}

function explainListenError(
  cause: unknown,
  { host, port }: { host: string; port: number },
  [hostFlag, portFlag]: readonly [string, string],
): unknown {
  switch ((cause as NodeJS.ErrnoException).code) {
    case 'EADDRINUSE':
      return new ExplainedError(
        `port ${port} on ${host} is taken: choose another with ${portFlag}, or 0 for a free one`,
        { cause },
      );
    case 'EACCES':
      return new ExplainedError(`this user may not open port ${port} on ${host}: choose a port above 1023`, {
        cause,
      });
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
      return new ExplainedError(
        `${host} is not an address of this machine: choose another with ${hostFlag}`,
        {
          cause,
        },
      );
    default:
      return cause;
  }
}
