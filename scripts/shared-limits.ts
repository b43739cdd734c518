import type { SlotLimits } from '../src/fairness/slots.js';
import { BEGIN_QUEUE } from '../src/http/begin-queue.js';
import { FILE_SLOTS } from '../src/volumes/files/file-slots.js';
import { FILE_PIECES } from '../src/volumes/storage/store.js';
import { PREVIEW_LIMITS } from '../src/previews/bounds.js';
import { WAKE_LIMITS } from '../src/previews/wake/waker.js';
import { MOST_STREAMS } from '../src/sandboxes/metrics/follow.js';
import { MEMORY as EXEC_MEMORY } from '../src/sandboxes/exec/routes.js';
import { CALLS_AT_ONCE } from '../src/sandboxes/reconcile/runtime-calls.js';
import { DEFAULT_SETTINGS as settings } from '../src/settings.js';
import { bytes, number, type Answer, type Limit } from './limit-values.js';

const rateLimited: Answer = { error: 'rate_limited' };

/** `each`: the value for one organization. `total`: the value for the process. */
interface SharedLimit extends Omit<Limit, 'value'> {
  each: string;
  total: string;
}

const slots = (...all: SlotLimits[]) => ({
  each: all.map(({ each }) => number(each)).join(', '),
  total: all.map(({ total }) => number(total)).join(', '),
});
const halves = (...totals: number[]) =>
  slots(...totals.map((total) => ({ total, each: Math.ceil(total / 2) })));

/** The bounds that divide a resource of the process among organizations. */
export const SHARED: SharedLimit[] = [
  {
    limit: 'requests to previews in progress, open WebSockets included',
    ...slots({ total: PREVIEW_LIMITS.requests.total, each: PREVIEW_LIMITS.ofOrg }),
    beyond: rateLimited,
  },
  {
    limit: 'requests to previews that wait for the starts of sandboxes',
    ...slots(WAKE_LIMITS),
    beyond: { error: 'sandbox_not_running' },
  },
  {
    limit: 'requests that are read and not yet begun',
    ...slots(BEGIN_QUEUE),
    beyond: 'the request begins at once',
  },
  {
    limit: 'reads, uploads, copies and removals of files of volumes at once',
    ...slots(FILE_SLOTS.work),
    beyond: rateLimited,
  },
  { limit: 'lists of directories of volumes at once', ...slots(FILE_SLOTS.list), beyond: rateLimited },
  {
    limit: 'pieces of such work at once',
    ...slots(FILE_PIECES),
    beyond: 'the next piece waits for its turn',
  },
  { limit: 'open visits in sandboxes', ...halves(settings.maxVisits), beyond: rateLimited },
  {
    limit: 'memory of collected output of commands',
    each: bytes(EXEC_MEMORY.each),
    total: bytes(EXEC_MEMORY.total),
    beyond: rateLimited,
  },
  {
    limit: 'usage reports at once, and exports at once',
    ...halves(settings.maxUsageStreams, settings.maxExports),
    beyond: rateLimited,
  },
  { limit: 'requests that wait for a status', ...halves(settings.maxWaiters), beyond: rateLimited },
  { limit: 'messages of MCP in progress', ...halves(settings.maxMcpCalls), beyond: rateLimited },
  { limit: 'followed logs', ...halves(settings.maxLogFollowers), beyond: rateLimited },
  { limit: 'followed metrics of sandboxes', ...halves(MOST_STREAMS), beyond: rateLimited },
  { limit: 'live event streams', ...halves(settings.maxEventFollowers), beyond: rateLimited },
  {
    limit: 'webhooks that are served at once',
    ...slots(settings.webhooks.served),
    beyond: 'deliveries wait',
  },
  {
    limit: 'database connections for deliveries of webhooks',
    ...slots(settings.webhooks.connections),
    beyond: 'deliveries wait',
  },
  { limit: 'tests of webhooks at once', ...slots(settings.webhooks.tests), beyond: rateLimited },
  { limit: 'tests of registry credentials at once', ...slots(settings.registryTests), beyond: rateLimited },
  {
    limit: 'starts and image pulls of a worker at once',
    ...slots(CALLS_AT_ONCE.start),
    beyond: 'the start waits',
  },
  { limit: 'pauses of a worker at once', ...slots(CALLS_AT_ONCE.pause), beyond: 'the pause waits' },
  { limit: 'stops of a worker at once', ...slots(CALLS_AT_ONCE.stop), beyond: 'the stop waits' },
  {
    limit: 'kills and removals of a worker at once',
    ...slots(CALLS_AT_ONCE.kill, CALLS_AT_ONCE.destroy),
    beyond: 'the sandbox waits',
  },
];
