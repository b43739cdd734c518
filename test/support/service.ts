import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inject, onTestFinished } from 'vitest';
import { buildApp } from '../../src/app.js';
import { ActiveEventKeys } from '../../src/audit/events/active-keys.js';
import { operator } from '../../src/audit/events/actor.js';
import { SeenHeads } from '../../src/audit/log/seen-heads.js';
import { openEventKeys } from '../../src/audit/log/signing-key.js';
import { type ServiceContext } from '../../src/context.js';
import { listenForChanges } from '../../src/db/changes.js';
import { readInstance } from '../../src/db/instance-queries.js';
import { openPool, type Address, type Pool } from '../../src/db/pool.js';
import { openRequests } from '../../src/db/request-connections.js';
import { DiskReserve } from '../../src/disk/disk-reserve.js';
import { listen } from '../../src/http/listen.js';
import type { Certificate } from '../../src/http/tls/certificate.js';
import { createKey } from '../../src/keys/create.js';
import { now } from '../../src/lib/instant.js';
import { makeLog, withCopy } from '../../src/lib/log.js';
import { createOrg } from '../../src/orgs/create.js';
import { NO_METERS } from '../../src/lib/meters.js';
import type { Metrics } from '../../src/metrics/open-metrics.js';
import type { GatewayServices } from '../../src/engine/definition.js';
import { NetworkObserver } from '../../src/engine/network-record/observer.js';
import type { Runtime } from '../../src/engine/runtime.js';
import { SimulatedRuntime, type SimulatedOptions } from '../../src/engines/simulated/runtime.js';
import { PreviewHosts } from '../../src/previews/host.js';
import { openKeyring } from '../../src/secrets/key-file.js';
import { DEFAULT_WEBHOOK_SETTINGS } from '../../src/settings.js';
import type { Telemetry } from '../../src/telemetry/open-telemetry.js';
import { VolumeStore } from '../../src/volumes/storage/store.js';
import { makePeer } from '../../src/workers/peer.js';
import { startWorker } from '../../src/worker.js';
import { makeClient, type Client } from './client.js';
import { cloneTemplate } from './database.js';
import { expectCatalogued } from './event-catalogue.js';
import { gatewayServices } from '../../src/service/gateway-services.js';
import { makeContext } from '../../src/service/make-context.js';
import { DEFAULT_SETTINGS } from '../../src/settings.js';

/** A complete service on a new database: HTTP on a real port, worker, runtime. */
export interface TestService {
  ctx: ServiceContext;
  database: Address;
  url: string;
  runtime: Runtime;
  /** The directory of the simulated engine, keys and other files. */
  directory: string;
  /** The directory of the data of volumes. */
  volumesDir: string;
  /** Every log line. */
  logs: string[];
  /** A client of a new organization with a new key. */
  newOrg(): Promise<Client>;
  /** Stops the worker cleanly; the API continues. */
  stopWorker(): Promise<void>;
  /** Cuts connections that are not idle after the time. A test of what a stopped service answers needs more. */
  close(cutAfterMs?: number): Promise<void>;
}

export interface TestOptions {
  simulated?: SimulatedOptions;
  /** Creates a runtime other than the simulated one. `instanceId`: of the database. */
  runtime?: (
    instanceId: string,
    volumes: VolumeStore,
    pool: Pool,
    gateway: GatewayServices,
  ) => Promise<Runtime>;
  settings?: Partial<ServiceContext['settings']>;
  now?: ServiceContext['now'];
  worker?: boolean;
  disk?: Partial<ConstructorParameters<typeof DiskReserve>[0]>;
  metrics?: Metrics;
  /** Serves HTTPS. */
  certificate?: Certificate;
  /** Authorities of the certificates of other processes, in PEM. */
  authorities?: string[];
  /** In the URL for other processes, in place of the address. */
  advertisedHost?: string;
  draining?: AbortSignal;
  telemetry?: Telemetry;
  /** The host names of its previews. Nothing listens there. */
  previews?: PreviewHosts;
  /** Another process on the database of this service; close it first. */
  beside?: TestService;
  /** Whether it also acts on the engine of that service. */
  sameEngine?: boolean;
  /** The way of this process to its database, such as a proxy. */
  through?: (database: Address) => Promise<Address>;
}

/** Off by default: events about the use of keys, rate limits, and the address check of webhooks. */
const UNWATCHED = {
  keyUseWriteMs: 3_600_000,
  failedAuthLimit: 0,
  webhooks: { ...DEFAULT_WEBHOOK_SETTINGS, resolve: resolveNothing },
};

/** Tests query no name server. */
function resolveNothing(): Promise<string[]> {
  return Promise.reject(new Error('tests ask no name server'));
}

let orgs = 0;

export async function startTestService(options: TestOptions = {}): Promise<TestService> {
  const { beside } = options;
  const own = beside !== undefined && options.sameEngine ? undefined : makeDirectory();
  const directory = own ?? beside!.directory;
  const { address: database, drop } = beside
    ? { address: beside.database, drop: async () => Promise.resolve() }
    : await cloneTemplate(inject('server'));
  const logs: string[] = [];
  const memory = { write: (line: string) => void logs.push(line) };
  const log = makeLog('debug', withCopy(memory, options.telemetry?.addLine));
  // Processes on one database have the same keys.
  const eventKeys = openEventKeys({ file: join(beside?.directory ?? directory, 'event-keys') });
  const activeKeys = new ActiveEventKeys(eventKeys);
  const reached = options.through ? await options.through(database) : database;
  const pool = openPool(reached, () => undefined, activeKeys.marker);
  const requests = openRequests(reached, true, () => undefined, activeKeys.marker);
  // A clone has the id of its template: two services on one engine would take each other's containers for their own.
  if (!beside) await pool.query('update instance set id = gen_random_uuid()');
  const instance = await readInstance(pool);
  const volumesDir = join(directory, 'volumes');
  const volumes = new VolumeStore(volumesDir);
  await volumes.prepare();
  const keyring = openKeyring({ file: join(directory, 'secret-keys') });
  const network = new NetworkObserver();
  const gateway = gatewayServices({ pool, keyring, observer: network, log });
  const runtime = options.runtime
    ? await options.runtime(instance.id, volumes, pool, gateway)
    : new SimulatedRuntime(directory, options.simulated);
  const seenHeads = new SeenHeads(join(directory, 'event-heads'));
  const disk = new DiskReserve({
    pathOf:
      options.disk?.pathOf ??
      ((place) => ({ data: directory, volumes: volumesDir, engine: runtime.diskPath })[place]),
    reserveMib: options.disk?.reserveMib,
    hasOwnDatabase: false,
  });
  await disk.start(() => undefined);
  const changes = listenForChanges(reached, () => undefined);
  const stopping = new AbortController();
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
    now: options.now ?? now,
    peer: makePeer(instance.cursorKey, undefined, options.authorities),
    certificate: options.certificate,
    ...(options.draining ? { draining: options.draining } : {}),
    meters: options.metrics?.meters ?? NO_METERS,
    tracing: options.telemetry?.tracing,
    previews: options.previews ?? new PreviewHosts('localhost', 'http', 8081),
    settings: { ...DEFAULT_SETTINGS, ...UNWATCHED, ...options.settings },
    stopping: stopping.signal,
  });
  const app = await buildApp(ctx, { observe: options.metrics?.observe });
  const url = await listen(app, { host: '127.0.0.1', port: 0, isTls: options.certificate !== undefined });
  ctx.peer.address = url.replace('127.0.0.1', options.advertisedHost ?? '127.0.0.1');
  let worker = options.worker === false ? undefined : startWorker(ctx);
  async function stopWorker(): Promise<void> {
    const stopped = worker?.stop();
    worker = undefined;
    await stopped;
  }

  return {
    ctx,
    database,
    directory,
    url,
    runtime,
    volumesDir,
    logs,
    async newOrg() {
      orgs += 1;
      const slug = `org-${process.pid}-${orgs}`;
      const org = await createOrg(pool, { name: `Org ${orgs}`, slug }, operator('test'));
      const { id: keyId, key } = await createKey(pool, org.id, 'test key', operator('test'));
      return makeClient(url, { org, key, keyId });
    },
    stopWorker,
    async close(cutAfterMs = 2_000) {
      stopping.abort();
      const cut = setTimeout(() => app.server.closeAllConnections(), cutAfterMs);
      await app.close();
      clearTimeout(cut);
      await stopWorker();
      await disk.stop();
      await changes.close();
      await runtime.close();
      await volumes.close();
      const wrong = await expectCatalogued(pool).then(
        () => undefined,
        (error: Error) => error,
      );
      await pool.end();
      await requests.close();
      await drop();
      if (own !== undefined) rmSync(own, { recursive: true, force: true });
      if (wrong) throw wrong;
    },
  };
}

/** The service closes with the test; of several services the last one closes first. */
export async function startForTest(options: TestOptions = {}): Promise<TestService> {
  const service = await startTestService(options);
  onTestFinished(() => service.close());
  return service;
}

function makeDirectory(): string {
  return mkdtempSync(join(tmpdir(), 'sandkeep-service-'));
}
