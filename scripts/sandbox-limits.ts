import { DEFAULT_CONFIG } from '../src/config/options.js';
import { MAX_LABELS, MAX_TOTAL_BYTES } from '../src/lib/labels.js';
import { MIN_GROWTH_BYTES } from '../src/sandboxes/full-disk/growth.js';
import { SURVEY } from '../src/sandboxes/full-disk/survey.js';
import { LOG_LIMITS } from '../src/engines/docker/container.js';
import { DENIED_LISTS } from '../src/engine/network-record/denied-lists.js';
import { MINUTE } from '../src/engine/network-record/minute.js';
import { BINDINGS } from '../src/gateway/bindings.js';
import { WAITS } from '../src/gateway/connections/connection.js';
import { LONGEST_FIRST_BYTES } from '../src/gateway/connections/first-bytes.js';
import { CONNECTIONS } from '../src/gateway/connections/limits.js';
import { QUERIES } from '../src/gateway/dns/limits.js';
import { MOST_OPEN } from '../src/previews/grants/schema.js';
import { OUTPUT } from '../src/guest/programs.js';
import { BANDWIDTH } from '../src/machine-network/bandwidth.js';
import { FLOWS } from '../src/machine-network/compile-policy.js';
import { MAX_PATCH_BYTES, MAX_SPEC_BYTES, MOST } from '../src/spec/size-limits.js';
import { PREVIEW_LIMITS } from '../src/previews/bounds.js';
import { WAKE_LIMITS } from '../src/previews/wake/waker.js';
import { MAX_ANSWER_HEAD } from '../src/previews/proxy/exchange.js';
import { DEFAULT_SETTINGS as settings } from '../src/settings.js';
import { IMAGE_LIMITS } from './image-limits.js';
import { bytes, number, time, type Answer, type Limit } from './limit-values.js';

const rateLimited: Answer = { error: 'rate_limited' };

/** The bounds of one sandbox. */
export const SANDBOX_LIMITS: Limit[] = [
  {
    limit: 'requests to previews that wait for its start',
    value: number(WAKE_LIMITS.ofSandbox),
    beyond: { error: 'sandbox_not_running' },
  },
  {
    limit: 'specification as JSON, without patches',
    value: bytes(MAX_SPEC_BYTES),
    beyond: { error: 'invalid_sandbox_config' },
  },
  {
    limit: 'contents of all patches',
    value: bytes(MAX_PATCH_BYTES),
    beyond: { error: 'invalid_sandbox_config' },
  },
  {
    limit: 'environment variables, scripts, mounts, patches, rules of its network, ports that it publishes',
    value: [MOST.env, MOST.scripts, MOST.mounts, MOST.patches, MOST.rules, MOST.ports].map(number).join(', '),
    beyond: { error: 'invalid_request' },
  },
  {
    limit: 'labels, and the bytes of all keys and values',
    value: `${number(MAX_LABELS)}, ${bytes(MAX_TOTAL_BYTES)}`,
    beyond: { error: 'invalid_sandbox_config' },
  },
  { limit: 'open previews', value: number(MOST_OPEN), beyond: { error: 'quota_exceeded' } },
  { limit: 'open visits', value: number(settings.maxVisitsOfSandbox), beyond: rateLimited },
  {
    limit: 'processes and threads',
    value: number(DEFAULT_CONFIG.sandboxProcesses),
    option: 'sandboxProcesses',
    beyond: 'fork fails in the sandbox',
  },
  {
    limit: 'writes of a sandbox on Docker to each disk; see [runtimes.md](runtimes.md#disk-writes)',
    value: `${number(DEFAULT_CONFIG.sandboxDiskWritesMib)} MiB a second`,
    option: 'sandboxDiskWritesMib',
    beyond: 'the write waits',
  },
  {
    limit: 'MiB a second that a virtual machine writes to its own disk and its disk images',
    value: DEFAULT_CONFIG.microvmDiskWritesMib === 0 ? 'none' : number(DEFAULT_CONFIG.microvmDiskWritesMib),
    option: 'microvmDiskWritesMib',
    beyond: 'the write waits',
  },
  {
    limit: 'open connections out of the sandbox, and new ones by TCP a second after a burst of so many',
    value: `${number(FLOWS.open)}, ${number(FLOWS.tcpPerSecond)}`,
    beyond: 'the connection is refused',
  },
  {
    limit: 'names that it asks the gateway for in a second, in a burst, and at once',
    value: [QUERIES.perSecond.sandbox, QUERIES.burst.sandbox, QUERIES.atOnceOfSandbox].map(number).join(', '),
    beyond: 'the query is dropped, and its client asks again',
  },
  {
    limit: 'addresses of all names that it resolved, those of one name, and names of one address',
    value: [BINDINGS.ofSandbox, BINDINGS.ofName, BINDINGS.ofAddress].map(number).join(', '),
    beyond: 'the name and address whose answer ends first are forgotten',
  },
  {
    limit:
      'connections through the gateway of a sandbox, of its organization, and of all; fewer with few descriptors',
    value: [CONNECTIONS.ofSandbox, CONNECTIONS.ofOrg, CONNECTIONS.total].map(number).join(', '),
    beyond: 'the connection is reset',
  },
  {
    limit: 'connections of an organization whose first bytes are awaited; the length and the time of these',
    value: `${number(CONNECTIONS.undecidedOfOrg)}, ${bytes(LONGEST_FIRST_BYTES)}, ${time(WAITS.firstBytesMs)}`,
    beyond: 'the connection is reset',
  },
  {
    limit:
      'bandwidth of its network in each direction, and its burst; see [runtimes.md](runtimes.md#bandwidth)',
    value: `${number(DEFAULT_CONFIG.sandboxBandwidthMbits)} Mbit/s, ${bytes(BANDWIDTH.burstBytes)}`,
    option: 'sandboxBandwidthMbits',
    beyond: 'packets are dropped',
  },
  {
    limit: 'packets a second of its network in each direction, and at once; more with a larger bandwidth',
    value: `${number(BANDWIDTH.packetsPerSecond)}, ${number(BANDWIDTH.packetsPerSecond)}`,
    beyond: 'packets are dropped',
  },
  {
    limit: 'listed refusals of its network; see [network-record.md](network-record.md)',
    value: number(DENIED_LISTS.mostOfSandbox),
    beyond: 'the oldest are dropped',
  },
  {
    limit: 'destinations, refusals and violations of secrets in the record of a minute',
    value: `${number(MINUTE.destinations)}, ${number(MINUTE.refusals)}, ${number(MINUTE.secrets)}`,
    beyond: 'an event has the sums of the others',
  },
  {
    limit: 'output of its command a second, and at once; a line counts 128 bytes more',
    value: `${bytes(OUTPUT.rate)}, ${bytes(OUTPUT.burst)}`,
    beyond: 'the command waits in its write; nothing is lost',
  },
  {
    limit: 'stored log',
    value: `${LOG_LIMITS['max-file']} files of ${LOG_LIMITS['max-size'].replace('m', ' MiB')}`,
    beyond: 'the oldest file is deleted',
  },
  {
    limit: 'disk, where the engine can bound it',
    value: `${number(DEFAULT_CONFIG.defaultDiskMib)} MiB`,
    option: 'defaultDiskMib',
    beyond: 'writes fail in the sandbox',
  },
  {
    limit: 'growth while a disk has only its reserve left',
    value: bytes(MIN_GROWTH_BYTES),
    beyond: 'the run ends with the reason `disk_full`',
  },
  {
    limit: 'time of the measurement of all disks and volumes meanwhile',
    value: time(SURVEY.timeoutMs),
    beyond: 'the store counts with the growth that no other explains',
  },
  ...IMAGE_LIMITS.sandbox,
  {
    limit: 'requests to its previews in progress, open WebSockets included',
    value: number(PREVIEW_LIMITS.ofSandbox),
    beyond: rateLimited,
  },
  {
    limit: 'head of an answer to a preview',
    value: bytes(MAX_ANSWER_HEAD),
    beyond: { error: 'no_answer_of_sandbox' },
  },
];
