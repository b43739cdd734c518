import { sleep } from '../../../src/lib/sleep.js';
import type { Answer } from '../../support/answer.js';
import { makeClient } from '../../support/client.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import type { Dice } from './seeded-random.js';

export type Operation = 'create' | 'start' | 'stop' | 'restart' | 'delete';

/** A call: one operation, however often its request is sent. */
export interface Asked {
  operation: Operation;
  target: { id: string } | { name: string };
  /** Whether a create starts the sandbox. */
  starts: boolean;
  key: string | undefined;
  /** `unknown`: the connection broke, or the service answered that the outcome is unknown. */
  outcome: 'done' | 'refused' | 'unknown';
  /** Whether the answer waits for the sandbox to run. */
  waits: boolean;
  /** An abandoned request may take effect after later calls. */
  late: boolean;
  /** The id of the created sandbox. */
  id: string | undefined;
  note: string;
}

/** A caller sends calls in sequence under its own API key, which identifies its events. */
export interface Asker {
  org: Org;
  keyId: string;
  key: string;
  asked: Asked[];
}

export interface Org {
  id: string;
  name: string;
  slug: string;
  /** Ids from the answers to creates. */
  known: string[];
}

export interface Workload {
  dice: Dice;
  /** The present address of an API; waits until there is one. */
  url: (signal?: AbortSignal) => Promise<string>;
  /** Records an action for the message of a failure. */
  note: (text: string) => void;
  /** Records a fault. */
  wrong: (text: string) => void;
}

const NAMES = ['ant', 'bee', 'cat', 'dog', 'elk', 'fox'];
/** Some organizations have it, and some creates match it. */
export const POOL = {
  ...smallRequest('pool'),
  name: undefined,
  resources: { vcpus: 1, memory_mib: 128 },
  size: 2,
  most: 5,
};
const GIVES_UP_AFTER_MS = 120_000;

/** Sends this many calls in sequence. */
export async function ask(load: Workload, asker: Asker, count: number): Promise<void> {
  for (let index = 0; index < count; index += 1) {
    if (load.dice.chance(0.5)) await sleep(load.dice.between(0, 60));
    const asked = choose(load.dice, asker);
    asker.asked.push(asked);
    await carryOut(load, asker, asked);
    load.note(`${asker.org.name}: ${describe(asked)}`);
  }
}

/** A call and its outcome on one line. */
export function describe({ operation, target, starts, key, outcome, id, note }: Asked): string {
  const what = `${operation}${starts ? '+start' : ''} ${Object.values(target)[0]}`;
  return `${what}${key === undefined ? '' : ` key ${key}`}: ${outcome}${id ? ` ${id}` : ''} ${note}`.trim();
}

function choose(dice: Dice, { org }: Asker): Asked {
  const operation = dice.weighted({ create: 28, start: 26, stop: 18, restart: 12, delete: 16 });
  const recent = org.known.slice(-8);
  const byName = operation === 'create' || recent.length === 0 || dice.chance(0.4);
  const starts = operation === 'create' && dice.chance(0.7);
  return {
    operation,
    target: byName ? { name: dice.oneOf(NAMES) } : { id: dice.oneOf(recent) },
    starts,
    waits: (starts || operation === 'start' || operation === 'restart') && dice.chance(0.2),
    key: dice.chance(0.5) ? `key-${dice.seed()}` : undefined,
    outcome: 'unknown',
    late: false,
    id: undefined,
    note: '',
  };
}

async function carryOut(load: Workload, asker: Asker, asked: Asked): Promise<void> {
  const { dice } = load;
  const request = requestFor(dice, asked);
  if (asked.key === undefined) return settle(load, asker, asked, await send(load, asker, request));
  // With an idempotency key the request is sent until it is answered, and sometimes twice at once.
  const times = dice.chance(0.2) ? 2 : 1;
  const deadline = Date.now() + GIVES_UP_AFTER_MS;
  for (;;) {
    const impatient = dice.chance(0.1) ? AbortSignal.timeout(dice.between(0, 40)) : undefined;
    const answers = await Promise.all(
      Array.from({ length: times }, () => send(load, asker, request, impatient)),
    );
    if (impatient?.aborted) asked.late = true;
    const [first, second] = answers.filter((answer) => answer !== undefined && answer.status !== 503);
    if (first && second) compare(load, request, first, second);
    if (first) {
      const answer = first.status < 300 ? first : (second ?? first);
      settle(load, asker, asked, answer);
      if (asked.outcome === 'done' && dice.chance(0.3)) await repeat(load, asker, request, answer);
      return;
    }
    if (Date.now() > deadline) return load.wrong(`never answered: ${describe(asked)}`);
    await sleep(dice.between(5, 40));
  }
}

interface Request {
  method: string;
  path: string;
  query: Record<string, string | number | boolean>;
  body: unknown;
  headers: Record<string, string>;
}

function requestFor(dice: Dice, { operation, target, starts, waits, key }: Asked): Request {
  const headers: Record<string, string> = key === undefined ? {} : { 'idempotency-key': key };
  const wait = waits ? { wait_for: 'running', wait_timeout: 1 } : {};
  if (operation === 'create') {
    const lifecycle = {
      ...(dice.chance(0.25) ? { ephemeral: true } : {}),
      ...(dice.chance(0.1) ? { max_duration_secs: 1 } : {}),
    };
    const resources = dice.chance(0.8)
      ? POOL.resources
      : { vcpus: dice.between(1, 4), memory_mib: 128 * dice.between(1, 8) };
    const runtime = dice.chance(0.7) ? { cmd: ['work'], entrypoint: [] } : {};
    const body = smallRequest((target as { name: string }).name, { resources, lifecycle, runtime });
    return { method: 'POST', path: '/v1/sandboxes', query: { start: starts, ...wait }, body, headers };
  }
  const path = `/v1/sandboxes/${'id' in target ? target.id : `by-name/${target.name}`}`;
  if (operation === 'delete') return { method: 'DELETE', path, query: {}, body: undefined, headers };
  return { method: 'POST', path: `${path}/${operation}`, query: wait, body: undefined, headers };
}

/** Undefined when the connection broke. */
async function send(
  load: Workload,
  { key, org }: Asker,
  { method, path, query, body, headers }: Request,
  signal?: AbortSignal,
): Promise<Answer | undefined> {
  const url = await load.url();
  const client = makeClient(url, { org, key, keyId: '' }, { patience: 0 });
  const options = { query, headers, ...(body === undefined ? {} : { body }), ...(signal ? { signal } : {}) };
  try {
    return await client.request(method, path, options);
  } catch (error) {
    if (signal?.aborted || error instanceof TypeError) return undefined;
    throw error;
  }
}

function settle({ wrong }: Workload, { org }: Asker, asked: Asked, answer: Answer | undefined): void {
  if (!answer || answer.status === 503) return;
  asked.note = `${answer.status}${answer.body.status ? ` ${answer.body.status}` : ''}`;
  if (answer.status >= 500) wrong(`answered ${answer.status} ${answer.text}: ${describe(asked)}`);
  // The sandbox may have been started, and deleted while the answer waited.
  if (asked.waits && answer.status === 404) return;
  asked.outcome = answer.status < 300 ? 'done' : 'refused';
  if (asked.operation !== 'create' || asked.outcome !== 'done') return;
  asked.id = answer.body.id as string;
  org.known.push(asked.id);
}

/** A repeated request gets the same answer, whatever the present state. */
async function repeat(load: Workload, asker: Asker, request: Request, before: Answer): Promise<void> {
  const again = await send(load, asker, request);
  if (!again || again.status === 503) return;
  if (again.text === before.text && again.headers.get('idempotency-replayed') === 'true') return;
  load.wrong(`answered with ${before.text}, then under the same key with ${again.status} ${again.text}`);
}

/** Two requests under one key get one answer. With waits, each has the state at its own end. */
function compare({ wrong }: Workload, { query }: Request, first: Answer, second: Answer): void {
  if (first.status >= 300 || second.status >= 300) return;
  const same = 'wait_for' in query ? first.body.id === second.body.id : first.text === second.text;
  if (!same) wrong(`two answers to one request: ${first.text} and ${second.text}`);
}
