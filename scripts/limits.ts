import { MAX_DEPTH as MAX_NESTING, MAX_VALUES } from '../src/http/json-scanner.js';
import {
  BODY_LIMIT,
  HEADERS_TIMEOUT_MS,
  KEEP_ALIVE_MS,
  MOST_OF_CONNECTION,
  UPLOAD_TIMEOUT_MS,
} from '../src/http/server.js';
import { MOST_DELAY_MS, REFUSAL_DELAY_MS, REFUSAL_GAP_MS } from '../src/http/refusal-delays.js';
import { HANDSHAKE_MS } from '../src/http/tls/handshakes.js';
import { AT_ONCE } from '../src/fairness/shares.js';
import { PAGE_LIMIT } from '../src/lib/page.js';
import { BODY_MEMORY } from '../src/access/bodies.js';
import { SESSION_IDLE_MS } from '../src/access/session-uses.js';
import { MEMBER_SESSION_MS, MOST_MEMBER_SESSIONS } from '../src/console/open-member-session.js';
import { MOST_DEVICES } from '../src/console/device/routes.js';
import { SIGN_INS_UNDER_WAY } from '../src/console/provider-routes.js';
import { MOST_TOKENS } from '../src/keys/tokens/create.js';
import { MOST_INVITATIONS } from '../src/members/invite.js';
import { MOST_CHALLENGES } from '../src/people/passkeys/challenge.js';
import { MOST_PASSKEYS } from '../src/people/passkeys/register.js';
import { LONG_EVENTS } from '../src/audit/events/long-events.js';
import { NETWORK_EVENTS } from '../src/sandboxes/network/event-bytes.js';
import { STARTS } from '../src/sandboxes/pools/refill.js';
import { MOST_MEMBERS, MOST_POOLS } from '../src/sandboxes/pools/schema.js';
import { LONGEST_EXPORT_MS } from '../src/engines/microvm/snapshots/archive-machine.js';
import { FEWEST_BYTES, HEADER_BYTES, MOST_OF_DISK } from '../src/engines/microvm/snapshots/vm-archives.js';
import { MOST_IMPORT_BYTES } from '../src/snapshots/archives/import.js';
import { TRANSFERS } from '../src/snapshots/archives/routes.js';
import { CAPTURES_AT_ONCE } from '../src/snapshots/capture-queue.js';
import { MOST_VOLUME_COPIES } from '../src/snapshots/forks/check.js';
import { MOST_COPIES } from '../src/snapshots/forks/schema.js';
import { LONGEST_CAPTURE_MS } from '../src/snapshots/overdue.js';
import { MOST_UNFINISHED, MOST_UNFINISHED_FORKS } from '../src/snapshots/source.js';
import { STORED_ANSWERS } from '../src/idempotency/stored-answers.js';
import { POOL_SLOTS, READ_SLOTS } from '../src/db/request-connections.js';
import { BYTES_OF_UNIT, KEY_WINDOW_SECS } from '../src/access/rate-limit.js';
import { ADMISSION } from '../src/http/admission.js';
import { UNREAD } from '../src/http/unread-answers.js';
import { MOST_HOPS } from '../src/http/client-address.js';
import { BACKLOG } from '../src/http/listen.js';
import { MOST_CONNECTIONS, RESERVED_DESCRIPTORS } from '../src/http/connections.js';
import { MCP_BODY_LIMIT } from '../src/mcp/schema.js';
import { SESSION_UNITS } from '../src/sandboxes/sessions/entrance.js';
import { MAX_ENTRIES } from '../src/volumes/files/list.js';
import { MAX_COPY_BYTES } from '../src/volumes/files/copy.js';
import { DEFAULT_RESERVE, INODE_RESERVE } from '../src/disk/disk-reserve.js';
import { MAX_NAMES, NAME_BYTES, PATH_BYTES } from '../src/volumes/storage/guest-path.js';
import { EXEC_BODY_LIMIT, MAX_OUTPUT_BYTES, MAX_TIMEOUT_SECS } from '../src/sandboxes/exec/schema.js';
import { CREATE_BODY_LIMIT } from '../src/spec/size-limits.js';
import { MAX_PAGE_BYTES } from '../src/sandboxes/reads/list.js';
import { MAX_HANDLES } from '../src/sandboxes/agent/connection-files.js';
import { MAX_SESSIONS } from '../src/sandboxes/agent/channel.js';
import { MAX_FRAME } from '../src/sandboxes/agent/envelope.js';
import { MEMORY as CHANNEL_MEMORY } from '../src/sandboxes/agent/route.js';
import { MAX_ADDRESSES } from '../src/outbound/destination.js';
import { MAX_READ_BYTES } from '../src/outbound/post.js';
import { STARTS_PER_CPU } from '../src/engines/docker/engine-info.js';
import { MOST_LAYERS } from '../src/engines/docker/snapshots/disk-captures.js';
import { HEAD_RUNS, PASS_RUNS } from '../src/sandboxes/placement/queries.js';
import { PREVIEW_LIMITS } from '../src/previews/bounds.js';
import { MAX_HEAD_BYTES, MAX_HEADERS } from '../src/previews/limits.js';
import { HEAD_MS } from '../src/previews/listener.js';
import { SILENCE_MS, STALL_MS } from '../src/previews/proxy/exchange.js';
import { PACE } from '../src/fairness/pace.js';
import { SHARE_MS } from '../src/fairness/loop-time.js';
import { DEFAULT_SETTINGS as settings } from '../src/settings.js';
import { IMAGE_LIMITS } from './image-limits.js';
import { answerText, bytes, number, time, type Answer, type Limit } from './limit-values.js';
import { SANDBOX_LIMITS } from './sandbox-limits.js';
import { SHARED } from './shared-limits.js';
import { TEMPLATE_LIMITS } from './template-limits.js';

export const OWNERS = [
  'request',
  'connection',
  'address',
  'key',
  'sandbox',
  'organization',
  'process',
] as const;
type Owner = (typeof OWNERS)[number];

const rateLimited: Answer = { error: 'rate_limited' };

const sharedBy = (part: 'each' | 'total'): Limit[] =>
  SHARED.map(({ limit, beyond, [part]: value }) => ({ limit, value, beyond }));

/** Each row takes its value from the code that enforces it. */
export const LIMITS: Record<Owner, Limit[]> = {
  request: [
    {
      limit: 'JSON body: to create a sandbox, to run a command, of MCP, other',
      value: [CREATE_BODY_LIMIT, EXEC_BODY_LIMIT, MCP_BODY_LIMIT, BODY_LIMIT].map(bytes).join(', '),
      beyond: { error: 'payload_too_large' },
    },
    {
      limit: 'values of a JSON body, and its depth',
      value: `${number(MAX_VALUES)}, ${number(MAX_NESTING)}`,
      beyond: { error: 'invalid_request' },
    },
    {
      limit: 'time for the body to arrive, uploads aside',
      value: time(settings.bodyTimeoutMs),
      beyond: { error: 'request_timeout' },
    },
    {
      limit: 'trusted proxies in `X-Forwarded-For`',
      value: number(MOST_HOPS),
      beyond: 'the last of them is the client',
    },
    {
      limit: 'time for an upload',
      value: time(UPLOAD_TIMEOUT_MS),
      beyond: { error: 'request_timeout' },
    },
    { limit: 'items of a page', value: number(PAGE_LIMIT.max), beyond: { error: 'invalid_request' } },
    {
      limit: 'text of a page of sandboxes with more than one',
      value: bytes(MAX_PAGE_BYTES),
      beyond: 'the page ends early, with a cursor',
    },
    {
      limit: 'wait of `wait_for`',
      value: time(settings.waitBudgetMs),
      beyond: 'the answer has the status reached by then',
    },
    {
      limit: 'time of an export or a usage report',
      value: time(settings.usageLimitMs),
      beyond: 'the connection ends',
    },
    {
      limit: 'time of a command by HTTP',
      value: time(MAX_TIMEOUT_SECS * 1000),
      beyond: { error: 'invalid_request' },
    },
    {
      limit: 'output of a command in one answer',
      value: bytes(MAX_OUTPUT_BYTES),
      beyond: 'the rest is dropped, and the answer says so',
    },
    {
      limit: 'entries of a listed directory',
      value: number(MAX_ENTRIES),
      beyond: { error: 'invalid_volume_path' },
    },
    {
      limit: 'length of a path in a volume, and of one name in it',
      value: `${bytes(PATH_BYTES)}, ${bytes(NAME_BYTES)}`,
      beyond: { error: 'invalid_volume_path' },
    },
    {
      limit: 'names of a path in a volume',
      value: number(MAX_NAMES),
      beyond: { error: 'invalid_volume_path' },
    },
    {
      limit: 'size of a copied file, where the file system cannot share extents',
      value: bytes(MAX_COPY_BYTES),
      beyond: { error: 'invalid_volume_path' },
    },
  ],
  connection: [
    {
      limit: 'headers of a request to a preview: their bytes, their number, time to arrive',
      value: `${bytes(MAX_HEAD_BYTES)}, ${MAX_HEADERS}, ${time(HEAD_MS)}`,
      beyond: { error: 'headers_too_large' },
    },
    {
      limit: 'time in which a client of a preview takes nothing of an answer',
      value: time(STALL_MS),
      beyond: 'the connection ends',
    },
    {
      limit: 'time without a byte of a request to a preview or its answer, WebSockets aside',
      value: time(SILENCE_MS),
      beyond: 'the connection ends',
    },
    {
      limit: 'time for the headers to arrive',
      value: time(HEADERS_TIMEOUT_MS),
      beyond: { error: 'request_timeout' },
    },
    {
      limit: 'time from the first byte to the end of the TLS handshake',
      value: time(HANDSHAKE_MS),
      beyond: 'the connection ends',
    },
    {
      limit: 'time in which a client takes nothing of an answer that waits in memory',
      value: time(UNREAD.stallMs),
      beyond: 'the connection ends',
    },
    { limit: 'idle time between requests', value: time(KEEP_ALIVE_MS), beyond: 'the connection ends' },
    { limit: 'pipelined requests in progress', value: number(MOST_OF_CONNECTION), beyond: rateLimited },
    { limit: 'open sessions of a channel', value: number(MAX_SESSIONS), beyond: 'the session is refused' },
    {
      limit: 'open files and directories of a channel',
      value: number(MAX_HANDLES),
      beyond: 'the file is not opened',
    },
    { limit: 'frame of a channel', value: bytes(MAX_FRAME), beyond: 'the connection ends' },
  ],
  address: [
    {
      limit: 'requests to previews in progress, open WebSockets included',
      value: number(PREVIEW_LIMITS.requests.each),
      beyond: rateLimited,
    },
    {
      limit: 'open connections',
      value: 'half of those of the process',
      option: 'maxConnectionsOfAddress',
      beyond: 'its longest idle connection ends, or 503 `not_ready`',
    },
    {
      limit: 'requests in progress through trusted proxies',
      value: 'half of the connections of the process',
      option: 'maxConnectionsOfAddress',
      beyond: rateLimited,
    },
    {
      limit: 'delay of each answer 429, and time between two of one organization or address',
      value: `${time(REFUSAL_DELAY_MS)} to ${time(MOST_DELAY_MS)}, ${time(REFUSAL_GAP_MS)}`,
      beyond: 'the refusal; with the longest delay reached, the connection ends',
    },
    {
      limit: 'sign-ins by the provider in progress, in total and of one address',
      value: `${SIGN_INS_UNDER_WAY.total}, ${SIGN_INS_UNDER_WAY.each}`,
      beyond: rateLimited,
    },
    {
      limit: 'requests a minute without a valid key',
      value: number(settings.failedAuthLimit),
      option: 'failedAuthLimit',
      beyond: rateLimited,
    },
  ],
  key: [
    { limit: 'JSON bodies in memory', value: bytes(BODY_MEMORY.ofKey), beyond: rateLimited },
    { limit: 'messages of MCP in progress', value: number(settings.maxMcpCallsOfKey), beyond: rateLimited },
    {
      limit: 'units of a request, and of a session on an open connection',
      value: `1 and 1 for each ${bytes(BYTES_OF_UNIT)}, ${SESSION_UNITS}`,
      beyond: 'the rate of the key',
    },
    {
      limit: `units a second, on average over ${KEY_WINDOW_SECS} s`,
      value: number(settings.rateLimit),
      option: 'rateLimit',
      beyond: rateLimited,
    },
  ],
  sandbox: SANDBOX_LIMITS,
  organization: [
    { limit: 'JSON bodies in memory', value: bytes(BODY_MEMORY.ofOrg), beyond: rateLimited },
    {
      limit: 'answers that wait in memory for their clients',
      value: bytes(UNREAD.each),
      beyond: 'the answer of which nobody takes anything for the longest time ends with its connection',
    },
    {
      limit: `answers stored for \`Idempotency-Key\` in a day, beyond ${bytes(STORED_ANSWERS.freeBytes)} of each`,
      value: bytes(STORED_ANSWERS.maxBytes),
      beyond: `${answerText(rateLimited)} to new requests with the header`,
    },
    {
      limit: `audit events of requests in an hour, beyond ${bytes(LONG_EVENTS.freeBytes)} of each`,
      value: bytes(LONG_EVENTS.maxBytes),
      beyond: `${answerText(rateLimited)} to requests with long labels`,
    },
    {
      limit: 'audit events of networks in an hour: destinations, and refusals',
      value: `${bytes(NETWORK_EVENTS.destinationBytes)}, ${bytes(NETWORK_EVENTS.refusalBytes)}`,
      beyond: 'an event has the sums of a minute; see [network-record.md](network-record.md#limits)',
    },
    {
      limit: 'database connections at once, and short reads at once',
      value: `${POOL_SLOTS.each}, ${READ_SLOTS.each}`,
      beyond: `the request waits ${time(POOL_SLOTS.maxWaitMs)}, then ${answerText({ error: 'not_ready' })}`,
    },
    {
      limit: 'snapshots of an organization that are being made, and those captured at once',
      value: `${number(MOST_UNFINISHED)}, ${number(CAPTURES_AT_ONCE.each)}`,
      beyond: `${answerText({ error: 'quota_exceeded' })}, and the captures wait`,
    },
    {
      limit: 'copies in one fork, volumes that it copies, and forks of an organization that have not ended',
      value: `${number(MOST_COPIES)}, ${number(MOST_VOLUME_COPIES)}, ${number(MOST_UNFINISHED_FORKS)}`,
      beyond: `${answerText({ error: 'invalid_request' })}, and ${answerText({ error: 'quota_exceeded' })}`,
    },
    {
      limit: 'time of a snapshot',
      value: time(LONGEST_CAPTURE_MS),
      beyond: 'the operation fails with `timed_out`',
    },
    ...TEMPLATE_LIMITS,
    {
      limit: 'layers of a snapshot on Docker, with those of its image',
      value: number(MOST_LAYERS),
      beyond: 'the operation fails with `too_many_layers`',
    },
    { limit: 'open invitations', value: number(MOST_INVITATIONS), beyond: { error: 'quota_exceeded' } },
    {
      limit: 'personal tokens of a member',
      value: number(MOST_TOKENS),
      beyond: { error: 'quota_exceeded' },
    },
    {
      limit: 'sign-ins of devices that wait for their code, in total and of a network',
      value: `${number(MOST_DEVICES.total)}, ${number(MOST_DEVICES.each)}`,
      beyond: { error: 'rate_limited' },
    },
    {
      limit: 'sessions of a member in the console',
      value: number(MOST_MEMBER_SESSIONS),
      beyond: 'a further sign-in ends the oldest',
    },
    { limit: 'passkeys of a member', value: number(MOST_PASSKEYS), beyond: { error: 'quota_exceeded' } },
    {
      limit: 'begun sign-ins with passkeys, of one network and in all',
      value: `${number(MOST_CHALLENGES.each)}, ${number(MOST_CHALLENGES.total)}`,
      beyond: 'a further one ends the oldest, whose person begins again',
    },
    {
      limit: 'time of a session of a member, and its time without a request',
      value: `${time(MEMBER_SESSION_MS)}, ${time(SESSION_IDLE_MS)}`,
      beyond: 'the session ends',
    },
    {
      limit: 'exports and imports of snapshots at once',
      value: number(TRANSFERS.each),
      beyond: 'they wait, then 429 `rate_limited`; an idle one is cut off while others wait',
    },
    {
      limit: 'archive of an import, and its uncompressed layers',
      value: `${bytes(MOST_IMPORT_BYTES)}, or what \`max_snapshot_gib\` leaves`,
      beyond: '413 `payload_too_large`, or 403 `quota_exceeded`',
    },
    {
      limit: 'archive of an export of microVMs',
      value: `${MOST_OF_DISK} × its base and its disk, and ${bytes(FEWEST_BYTES)}`,
      beyond: '501 `not_supported`',
    },
    {
      limit: 'room of such an archive on the disk of the machine',
      value: `${MOST_OF_DISK} × its base and its snapshot, and ${bytes(HEADER_BYTES)}`,
      beyond: '501 `not_supported`',
    },
    {
      limit: 'time of the virtual machine of an export',
      value: time(LONGEST_EXPORT_MS),
      beyond: '501 `not_supported`',
    },
    {
      limit: 'budgets',
      value: number(settings.budgetsPerOrg),
      option: 'budgetsPerOrg',
      beyond: { error: 'quota_exceeded' },
    },
    { limit: 'pools', value: number(MOST_POOLS), beyond: { error: 'quota_exceeded' } },
    { limit: 'ready sandboxes of a pool', value: number(MOST_MEMBERS), beyond: { error: 'invalid_request' } },
    {
      limit: 'starts for pools at once, and those of one pool',
      value: `${number(STARTS.ofOrg)}, ${number(STARTS.ofPool)}`,
      beyond: 'the pools wait',
    },
    ...IMAGE_LIMITS.organization,
    {
      limit: 'memory of its channels',
      value: bytes(CHANNEL_MEMORY.each),
      beyond: 'reading from the client pauses; a message that cannot become complete ends its connection',
    },
    {
      limit: 'requests in progress, bodies and answers included',
      value: 'half of the connections',
      beyond: rateLimited,
    },
    {
      limit: 'requests that wait to be admitted',
      value: number(ADMISSION.waiting.each),
      beyond: rateLimited,
    },
    {
      limit: 'cost in progress at once',
      value: `${ADMISSION.running.each} units; ${ADMISSION.alone} while no other organization asks`,
      beyond: 'its requests wait',
    },
    {
      limit: 'part of the time for its work while another organization is active',
      value: `${PACE.share * 100} %`,
      beyond: 'its requests wait, and its streams pause',
    },
    {
      limit: 'bytes that are read of the answer of a receiver',
      value: bytes(MAX_READ_BYTES),
      beyond: 'the connection ends',
    },
    {
      limit: 'addresses of a receiver that are tried in an attempt',
      value: number(MAX_ADDRESSES),
      beyond: 'the others are checked, and not tried',
    },
    ...sharedBy('each'),
  ],
  process: [
    ...IMAGE_LIMITS.process,
    {
      limit: 'open connections',
      value: `half of the descriptors beyond ${RESERVED_DESCRIPTORS}, at most ${number(MOST_CONNECTIONS)}`,
      option: 'maxConnections',
      beyond: 'the longest idle connection ends, or 503 `not_ready`',
    },
    {
      limit: 'connections that are not yet accepted',
      value: `${number(BACKLOG)}, or \`net.core.somaxconn\` if that is less`,
      beyond: 'the kernel ignores the connection, and the client tries again after a second',
    },
    {
      limit: 'requests that wait to be admitted, and for how long',
      value: `${number(ADMISSION.waiting.total)}, ${time(ADMISSION.maxWaitMs)}`,
      beyond: { error: 'not_ready' },
    },
    { limit: 'cost in progress at once', value: `${ADMISSION.running.total} units`, beyond: 'requests wait' },
    {
      limit: 'waiting requests that begin, and that are refused as late, in an iteration of the event loop',
      value: number(AT_ONCE),
      beyond: 'the next iteration',
    },
    {
      limit:
        'time of logs, event streams and channels in an iteration of the event loop, shared by organizations',
      value: time(SHARE_MS),
      beyond: 'reading pauses until the next iteration',
    },
    {
      limit: 'space that stays free on each disk',
      value: `${bytes(DEFAULT_RESERVE.bytes)}, or ${DEFAULT_RESERVE.share * 100} % of a larger disk; at most ${DEFAULT_RESERVE.maxShare * 100} % of a smaller one`,
      option: 'diskReserveMib',
      beyond: { error: 'storage_full' },
    },
    {
      limit: 'inodes that stay free on each disk',
      value: `${INODE_RESERVE.share * 100} %, at most ${number(INODE_RESERVE.max)}`,
      beyond: { error: 'storage_full' },
    },
    {
      limit: 'answers that wait in memory for their clients',
      value: bytes(UNREAD.total),
      beyond: 'as for an organization',
    },
    {
      limit: 'JSON bodies in memory',
      value: bytes(BODY_MEMORY.total),
      beyond: `${answerText(rateLimited)}; an organization keeps ${bytes(BODY_LIMIT)}`,
    },
    {
      limit: 'database connections of requests, and short reads at once',
      value: `${POOL_SLOTS.total}, ${READ_SLOTS.total}`,
      beyond: 'organizations take turns',
    },
    {
      limit: 'memory of channels',
      value: bytes(CHANNEL_MEMORY.total),
      beyond: 'reading from the client pauses',
    },
    {
      limit: 'containers that an engine makes at once, for each CPU',
      value: number(STARTS_PER_CPU),
      beyond: 'the start waits',
    },
    {
      limit:
        'waiting starts that a placement considers, in equal parts of the organizations: once a second, and between',
      value: `${number(PASS_RUNS)}, ${number(HEAD_RUNS)}`,
      beyond: 'a later placement considers the others',
    },
    ...sharedBy('total'),
  ],
};
