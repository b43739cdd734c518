import { join } from 'node:path';
import { ActiveEventKeys } from '../../../src/audit/events/active-keys.js';
import { SeenHeads } from '../../../src/audit/log/seen-heads.js';
import { openEventKeys } from '../../../src/audit/log/signing-key.js';
import { type ServiceContext } from '../../../src/context.js';
import { listenForChanges } from '../../../src/db/changes.js';
import { readInstance } from '../../../src/db/instance-queries.js';
import { openPool, type Address } from '../../../src/db/pool.js';
import { openRequests } from '../../../src/db/request-connections.js';
import { listen } from '../../../src/http/listen.js';
import { instantFromMicros, type Instant } from '../../../src/lib/instant.js';
import { makeLog } from '../../../src/lib/log.js';
import { sleep } from '../../../src/lib/sleep.js';
import { openKeyring } from '../../../src/secrets/key-file.js';
import { UNCHECKED_DISKS } from '../../../src/disk/disk-reserve.js';
import { VolumeStore } from '../../../src/volumes/storage/store.js';
import { startWorker } from '../../../src/worker.js';
import { WEBHOOKS } from './event-receiver.js';
import { ChaoticRuntime, type Chaos } from './faulty-runtime.js';
import { Dice } from './seeded-random.js';
import { makeContext } from '../../../src/service/make-context.js';
import { DEFAULT_SETTINGS } from '../../../src/settings.js';

/**
 * A process of the service for tests to kill: a worker, with or without the API, composed as in `sandkeep serve`. It
 * loads its modules and then waits for orders, so that a killed process is replaced quickly.
 */

export interface Orders {
  database: Address;
  /** The directory of the simulated engine. */
  directory: string;
  seed: number;
  chaos: Chaos;
  leaseMs: number;
  lingerMs: number;
  /** Whether the worker starts at once. */
  works: boolean;
  /** Added to the monotonic clock of the machine, it gives microseconds since 1970. */
  clockOffset: string;
}

export type Command = { serve: Orders } | { work: boolean } | { stop: true };
/** `url`: of the API; empty without one. */
export type Report = { loaded: true } | { url: string } | { done: true };

const api = process.argv[2] === 'api' ? await import('../../../src/app.js') : undefined;
api?.warmUp();

let served: { work(works: boolean): Promise<void>; stop(): Promise<void> } | undefined;

async function serve(orders: Orders): Promise<void> {
  const { database, directory } = orders;
  const eventKeys = openEventKeys({ file: join(directory, 'event-keys') });
  const activeKeys = new ActiveEventKeys(eventKeys);
  const pool = openPool(database, () => undefined, activeKeys.marker);
  const requests = openRequests(database, true, () => undefined, activeKeys.marker);
  const instance = await untilUp(() => readInstance(pool));
  const volumes = new VolumeStore(join(directory, 'volumes'));
  await volumes.prepare();
  const runtime = new ChaoticRuntime(directory, orders.chaos, new Dice(orders.seed));
  const changes = listenForChanges(database, () => undefined);
  const stopping = new AbortController();
  const ctx = makeContext<ServiceContext>(instance.cursorKey, {
    pool,
    requests,
    runtime,
    volumes,
    changes,
    log: makeLog('warn', process.stderr),
    now: sharedClock(BigInt(orders.clockOffset)),
    disk: UNCHECKED_DISKS,
    keyring: openKeyring({ file: join(directory, 'secret-keys') }),
    eventKeys,
    activeKeys,
    seenHeads: new SeenHeads(join(directory, 'event-heads')),
    settings: {
      ...DEFAULT_SETTINGS,
      workerLeaseMs: orders.leaseMs,
      ephemeralLingerMs: orders.lingerMs,
      webhooks: WEBHOOKS,
    },
    stopping: stopping.signal,
  });
  let worker = orders.works ? startWorker(ctx) : undefined;
  const app = await api?.buildApp(ctx);
  const url = app ? await listen(app, { host: '127.0.0.1', port: 0 }) : '';
  served = {
    async work(works) {
      if (works) worker ??= startWorker(ctx);
      else {
        await worker?.stop();
        worker = undefined;
      }
    },
    async stop() {
      stopping.abort();
      const closed = app?.close();
      // Clients keep idle connections open.
      app?.server.closeAllConnections();
      await closed;
      await worker?.stop();
      await changes.close();
      await runtime.close();
      await pool.end();
      await requests.close();
    },
  };
  report({ url });
}

/** Retries like a supervisor that restarts the service until the database is up. */
async function untilUp<T>(work: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await work();
    } catch {
      await sleep(25);
    }
  }
}

/**
 * Two processes' clocks differ by up to two milliseconds, and the checks compare times across processes. So all share
 * one clock, which never repeats a reading.
 */
function sharedClock(offset: bigint): () => Instant {
  let last = 0n;
  return () => {
    const reading = offset + process.hrtime.bigint() / 1_000n;
    last = reading > last ? reading : last + 1n;
    return instantFromMicros(last);
  };
}

function report(message: Report): void {
  process.send!(message);
}

async function obey(command: Command): Promise<void> {
  if ('serve' in command) return serve(command.serve);
  if ('work' in command) {
    await served?.work(command.work);
    return report({ done: true });
  }
  await served?.stop();
  process.exit(0);
}

process.on('message', (command: Command) => void obey(command));
// The parent is gone, and nothing else would end this process.
process.on('disconnect', () => process.exit(1));
report({ loaded: true });
