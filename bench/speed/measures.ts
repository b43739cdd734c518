import { LABELS } from './data-set.js';

const DAY_MS = 86_400_000;
/** The file of the reads of files, as the path header encodes it. */
export const FILE = Buffer.from('/bench.txt').toString('base64url');
const ROOT = Buffer.from('/').toString('base64url');

/** The targets of the requests in the measured organization. */
export interface Subject {
  /** The sandboxes of single reads, by id and by name. */
  ids: string[];
  names: string[];
  eventId: string;
  /** The number of the last loaded event in the event log. */
  lastSeq: number;
  keyId: string;
  volumeId: string;
  /** Milliseconds: the end of the history. */
  until: number;
}

/** A path, with headers where the request needs more than the key. */
export type Read = string | { path: string; headers: Record<string, string> };

/** A read that has a target. */
export interface Measure {
  name: string;
  paths: (subject: Subject) => string[];
  /** The same read on floor B, see floors.ts. */
  floor: { statement: string; values: (path: string) => unknown[] };
}

const list = (query: string) => () => [`/v1/sandboxes?${query}`];
const labels = (wanted: Record<string, string>) => `labels=${encodeURIComponent(JSON.stringify(wanted))}`;
const TYPE = 'sandbox_started';
const at = (millis: number) => new Date(millis).toISOString();
const events =
  (limit: number) =>
  ({ until }: Subject) => [
    `/v1/events?limit=${limit}&event_type=${TYPE}&since=${at(until - 30 * DAY_MS)}&until=${at(until)}`,
  ];
const eventValues = (limit: number) => (path: string) => {
  const query = new URLSearchParams(path.slice(path.indexOf('?')));
  return [TYPE, query.get('since'), query.get('until'), limit];
};

export const MEASURES: Measure[] = [
  {
    name: 'get one',
    paths: ({ ids }) => ids.map((id) => `/v1/sandboxes/${id}`),
    floor: { statement: 'one', values: (path) => [path.split('/').at(-1)] },
  },
  { name: 'list 20', paths: list('limit=20'), floor: { statement: 'page', values: () => [20] } },
  { name: 'list 100', paths: list('limit=100'), floor: { statement: 'page', values: () => [100] } },
  {
    name: 'list by a rare label',
    paths: list(labels(LABELS.rare)),
    floor: { statement: 'label', values: () => [...Object.entries(LABELS.rare)[0]!, 20] },
  },
  {
    name: 'list by a common label',
    paths: list(labels(LABELS.common)),
    floor: { statement: 'label', values: () => [...Object.entries(LABELS.common)[0]!, 20] },
  },
  {
    name: 'list by two labels that never meet',
    paths: list(labels(LABELS.apart)),
    floor: { statement: 'labels', values: () => [...Object.entries(LABELS.apart).flat(), 20] },
  },
  {
    name: 'events 20, type and time',
    paths: events(20),
    floor: { statement: 'events', values: eventValues(20) },
  },
  {
    name: 'events 100, type and time',
    paths: events(100),
    floor: { statement: 'events', values: eventValues(100) },
  },
];

export interface OtherRead {
  name: string;
  paths: (subject: Subject) => Read[];
  /** Long answers are requested in sequence, and counted few at a time. */
  streamed?: true;
}

/** Every other read, once. Followed logs and streams are absent, because they do not end. */
export const OTHER_READS: OtherRead[] = [
  { name: 'get by name', paths: ({ names }) => names.map((name) => `/v1/sandboxes/by-name/${name}`) },
  { name: 'list by status', paths: list('limit=20&status=stopped') },
  { name: 'list by the beginning of names', paths: list('limit=20&name_prefix=box-0001') },
  { name: 'list by name', paths: list('limit=20&sort=name') },
  { name: 'events 20', paths: () => ['/v1/events?limit=20'] },
  {
    name: 'events of a sandbox',
    paths: ({ ids }) => ids.slice(0, 50).map((id) => `/v1/events?limit=20&resource_id=${id}`),
  },
  { name: 'one event', paths: ({ eventId }) => [`/v1/events/${eventId}`] },
  {
    name: 'events exported, 1,000',
    paths: ({ until, lastSeq }) => [`/v1/events/export?after_seq=${lastSeq - 1_000}&until=${at(until)}`],
    streamed: true,
  },
  { name: 'usage of a month', paths: ({ until }) => [`/v1/billing/usage?month=${at(until).slice(0, 7)}`] },
  {
    name: 'usage by sandbox, one of them',
    paths: (subject) => [`/v1/billing/usage/sandbox?${lastDays(subject, 30)}&sandbox_id=${subject.ids[0]}`],
    streamed: true,
  },
  {
    name: 'usage by sandbox, a day',
    paths: (subject) => [`/v1/billing/usage/sandbox?${lastDays(subject, 1)}`],
    streamed: true,
  },
  {
    name: 'usage by label, a day',
    paths: (subject) => [`/v1/billing/usage/labels?key=team&${lastDays(subject, 1)}`],
    streamed: true,
  },
  {
    name: 'usage of storage, a day',
    paths: (subject) => [`/v1/billing/usage/storage?${lastDays(subject, 1)}`],
    streamed: true,
  },
  { name: 'volumes', paths: () => ['/v1/volumes'] },
  { name: 'default volume', paths: () => ['/v1/volumes/default'] },
  { name: 'organization', paths: () => ['/v1/me/org'] },
  { name: 'members', paths: () => ['/v1/members'] },
  { name: 'quotas', paths: () => ['/v1/quotas'] },
  { name: 'summary of sandboxes', paths: () => ['/v1/sandboxes/summary'] },
  { name: 'keys', paths: () => ['/v1/keys'] },
  { name: 'one key', paths: ({ keyId }) => [`/v1/keys/${keyId}`] },
  { name: 'webhooks', paths: () => ['/v1/webhooks'] },
  { name: 'files of a volume', paths: files('', ROOT) },
  { name: 'stat of a file', paths: files('/stat', FILE) },
  { name: 'whether a file exists', paths: files('/exists', FILE) },
  { name: 'content of a file, 4 KiB', paths: files('/content', FILE) },
];

function files(what: string, path: string) {
  return ({ volumeId }: Subject): Read[] => [
    { path: `/v1/volumes/${volumeId}/files${what}`, headers: { 'x-msb-file-path': path } },
  ];
}

/** Whole UTC days. */
function lastDays({ until }: Subject, days: number): string {
  const end = Math.floor(until / DAY_MS) * DAY_MS;
  return `since=${at(end - days * DAY_MS).slice(0, 10)}&until=${at(end).slice(0, 10)}`;
}
