/**
 * The API as it is, without one layer in front of its routes, or with metrics or traces. `node arm-server.js <arm>
 * <database URL> <directory> <organization>` prints its address and serves until it is killed.
 */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { FULL_ACCESS } from '../src/access/access.js';
import { buildApp } from '../src/app.js';
import { operator } from '../src/audit/events/actor.js';
import { ActiveEventKeys } from '../src/audit/events/active-keys.js';
import { SeenHeads } from '../src/audit/log/seen-heads.js';
import { openEventKeys } from '../src/audit/log/signing-key.js';
import { DEFAULT_CONFIG } from '../src/config/options.js';
import { type ServiceContext } from '../src/context.js';
import { listenForChanges } from '../src/db/changes.js';
import { openPool } from '../src/db/pool.js';
import { openRequests } from '../src/db/request-connections.js';
import { listen } from '../src/http/listen.js';
import { makeLog } from '../src/lib/log.js';
import { SimulatedRuntime } from '../src/engines/simulated/runtime.js';
import { Keyring } from '../src/secrets/keyring.js';
import { UNCHECKED_DISKS } from '../src/disk/disk-reserve.js';
import { openTelemetry } from '../src/telemetry/open-telemetry.js';
import { VolumeStore } from '../src/volumes/storage/store.js';
import { NO_METERS } from '../src/lib/meters.js';
import { openMetrics } from '../src/metrics/open-metrics.js';
import { makeContext } from '../src/service/make-context.js';
import { DEFAULT_SETTINGS } from '../src/settings.js';

const [arm, url, directory, orgId, collector = '', share = '1'] = process.argv.slice(2) as [
  string,
  string,
  string,
  string,
  ...string[],
];
const key = createHash('sha256').update('bench').digest('base64');
const address = { url };
const eventKeys = openEventKeys({ keys: key });
const activeKeys = new ActiveEventKeys(eventKeys);
const pool = openPool(address, () => undefined, activeKeys.marker);
// Policies do not apply to the owner of the tables; everything else is the same.
const requests = openRequests(address, arm !== 'no policies', () => undefined, activeKeys.marker);
const metrics = arm === 'with metrics' ? await openMetrics({ byOrg: false, freshMs: 0 }) : undefined;
const telemetry =
  arm === 'with traces'
    ? await openTelemetry(
        {
          ...DEFAULT_CONFIG,
          otlpEndpoint: collector,
          tracesSampler: 'parentbased_traceidratio',
          tracesSamplerArg: Number(share),
        },
        NO_METERS,
      )
    : undefined;
const runtime = new SimulatedRuntime(directory);
const ctx = makeContext<ServiceContext>(Buffer.alloc(32), {
  pool,
  requests,
  eventKeys,
  settings: { ...DEFAULT_SETTINGS, rateLimit: 100_000 },
  activeKeys,
  runtime,
  volumes: new VolumeStore(directory),
  disk: UNCHECKED_DISKS,
  meters: metrics?.meters ?? NO_METERS,
  tracing: telemetry?.tracing,
  seenHeads: new SeenHeads(join(directory, 'event-heads')),
  keyring: () => Keyring.parse(key, 'the bench'),
  changes: listenForChanges(address, () => undefined),
  log: makeLog('error', process.stderr),
  stopping: new AbortController().signal,
});
const app = await buildApp(ctx, {
  observe: metrics?.observe,
  hasTurns: arm !== 'no turns',
  ...(arm === 'no authentication'
    ? {
        makeAuthentication: async () =>
          Promise.resolve({
            async authenticate(request) {
              request.caller = { orgId, actor: operator('bench'), access: FULL_ACCESS };
              return Promise.resolve();
            },
            signIn: async () => Promise.reject(new Error('the bench signs nobody in')),
            countFailure: () => undefined,
            forgetSessions: () => undefined,
            ownerOf: () => undefined,
          }),
      }
    : {}),
});
console.log(JSON.stringify({ address: await listen(app, { host: '127.0.0.1', port: 0 }) }));
