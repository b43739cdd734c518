import type { Logger } from 'pino';
import { ActiveEventKeys } from '../audit/events/active-keys.js';
import { SeenHeads, seenHeadsFile } from '../audit/log/seen-heads.js';
import type { ServiceContext } from '../context.js';
import { listenForChanges } from '../db/changes.js';
import { walWaitingSecs } from '../db/embedded/wal-archive.js';
import { readInstance } from '../db/instance-queries.js';
import { DiskReserve } from '../disk/disk-reserve.js';
import { listen, reachableAt } from '../http/listen.js';
import { createFirstKey, type FirstKey } from '../keys/first-key.js';
import { openLogDestination } from '../lib/log-destination.js';
import { batchedByTurn, makeLog, withCopy } from '../lib/log.js';
import { NO_METERS } from '../lib/meters.js';
import { Resources } from '../lib/resources.js';
import { sleep } from '../lib/sleep.js';
import type { Metrics } from '../metrics/open-metrics.js';
import type { PriceBook } from '../prices/price.js';
import { NetworkObserver } from '../engine/network-record/observer.js';
import type { Runtime } from '../engine/runtime.js';
import { settingsOf, webhookSettings } from '../settings.js';
import { openConfigured, superviseExport } from '../telemetry/start.js';
import { recordPriceBook } from '../usage/record-price-book.js';
import { saveDestinationPolicy } from '../webhooks/destination-policy.js';
import { startWorker } from '../worker.js';
import { makePeer } from '../workers/peer.js';
import {
  openCertificate,
  readForwardCa,
  placeOf,
  listenForScrapes,
  closeApp,
  explainListenError,
} from './listening.js';
import { listenForPreviews, previewHostsOf } from './listen-for-previews.js';
import { archivedDirectory, startBackups, startWalArchive } from './keep-copies.js';
import { openDatabase, openPools, describeDatabase } from './open-database.js';
import { openKeysOfLog, openSecretKeys } from './open-keys.js';
import { gatewayServices } from './gateway-services.js';
import { openServedRuntime, openVolumes } from './open-runtime.js';
import type { ServiceOptions, Startup } from './startup.js';
import { makeContext } from './make-context.js';

const CLOSE_TIMEOUT_MS = 15_000;
/** Several scrapers share a measurement. */
const METRICS_FRESH_MS = 5_000;

export interface Service {
  address: string;
  metricsAddress: string | undefined;
  /** The form of the URLs of previews, for the operator. Undefined: there are none. */
  previews: string | undefined;
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

/**
 * Starts `sandkeep serve`. A step that fails closes the resources of the steps so far. `onStep`: gets a sentence for
 * the operator before each step that may take seconds.
 */
export async function startService(
  options: ServiceOptions,
  onStep: (sentence: string) => void,
): Promise<Service> {
  const metrics = await openMetricsFor(options);
  const telemetry = await openConfigured(options, metrics?.meters ?? NO_METERS);
  const destination = batchedByTurn(await openLogDestination(options.logFormat));
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
    const startup = { options, onStep, log, resources, metrics, telemetry, ...signals };
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
  resources.add('the disks of volumes', () => volumes.close());
  const disk = new DiskReserve({
    pathOf: (place) =>
      ({ data: options.dataDir, volumes: options.volumesDir, engine: runtime.diskPath })[place],
    reserveMib: options.diskReserveMib,
    hasOwnDatabase: database.server !== undefined,
  });
  startup.onStep(`looking for the engine of sandboxes (--runtime ${options.runtime})`);
  const network = new NetworkObserver();
  const gateway = gatewayServices({ pool, keyring, observer: network, log });
  const parts = { volumes, disk, gateway };
  const { runtime, fallback } = await openServedRuntime(startup, pool, instance.id, parts);
  const changes = listenForChanges(database.address, (error) =>
    log.warn({ err: error }, 'the connection for notifications broke'),
  );
  resources.add('notifications', () => changes.close());

  await disk.start((error) => log.error({ err: error }, 'the disks cannot be measured'));
  resources.add('the measurement of disks', () => disk.stop());

  const archived = archivedDirectory(options);
  const previews = previewHostsOf(options);
  const ctx = makeContext<ServiceContext>(instance.cursorKey, {
    disk,
    pool,
    requests,
    runtime,
    network,
    volumes,
    changes,
    log,
    keyring,
    eventKeys,
    activeKeys,
    seenHeads,
    stopping,
    draining,
    certificate,
    previews,
    walWaitingSecs: archived && (() => walWaitingSecs(archived)),
    settings: settingsOf(options, priceBook),
    peer: makePeer(instance.cursorKey, options.advertiseUrl, authorities),
    meters: metrics?.meters ?? NO_METERS,
    tracing: telemetry?.tracing,
  });
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
  if (previews) await listenForPreviews(ctx, previews, startup);
  const firstKey = await createFirstKey(pool);
  if (options.role !== 'api') await startBackups(ctx, instance.id, startup);
  await startWalArchive(ctx, startup);
  const reload = certificate && (() => certificate.reload());
  return {
    address,
    metricsAddress,
    previews: previews?.pattern,
    database: describeDatabase(database),
    runtime,
    fallback,
    firstKey,
    reload,
  };
}

async function openMetricsFor({ metricsPort, metricsByOrg }: ServiceOptions): Promise<Metrics | undefined> {
  if (metricsPort === undefined) return undefined;
  const { openMetrics } = await import('../metrics/open-metrics.js');
  return openMetrics({ byOrg: metricsByOrg, freshMs: METRICS_FRESH_MS });
}

/** The module is loaded for a price book only. */
async function readPriceBook({ priceBook }: ServiceOptions): Promise<PriceBook | null> {
  if (priceBook === undefined) return null;
  const { loadPriceBook } = await import('../prices/price-book.js');
  return loadPriceBook(priceBook);
}

/** Stores which networks webhooks may reach, for commands that check addresses. The service itself does not read it. */
function noteReachFor(options: ServiceOptions, log: Logger): void {
  try {
    saveDestinationPolicy(options.dataDir, webhookSettings(options).reach);
  } catch (error) {
    log.warn({ err: error }, 'cannot store the reach of webhooks for commands');
  }
}
