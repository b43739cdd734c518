import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { FULL_ACCESS } from '../../../src/access/access.js';
import { operator } from '../../../src/audit/events/actor.js';
import { CATALOGUE } from '../../../src/http/errors.js';
import { createKey } from '../../../src/keys/create.js';
import { readBudget, readSeed } from '../../support/budget.js';
import { makeFixture } from '../../support/operation-requests.js';
import type { Answer } from '../../support/answer.js';
import { fuzzRequest, type FuzzRequest } from '../../support/fuzz-requests.js';
import { expectDocumented, operations } from '../../support/openapi.js';
import { until } from '../../support/polling.js';
import { startTestService, type TestService } from '../../support/service.js';

/** A round is a request. */
const BUDGET = readBudget({
  seconds: 'SANDKEEP_TEST_FUZZ_SECONDS',
  count: 'SANDKEEP_TEST_FUZZ_RUNS',
  defaultSeconds: 10,
  least: 1_000,
  roundMs: 200,
});
const SEED = readSeed('SANDKEEP_TEST_FUZZ_SEED');
const AT_ONCE = 8;
/** Requests between two readings of the clock. */
const BATCH = 200;
const SLOW_MS = 1_000;
/** A busy machine answers at least one attempt in time. A slow request is slow each time. */
const MOST_ATTEMPTS = 50;
const CODES = new Set(
  Object.entries(CATALOGUE).map(([name, entry]) => ('code' in entry ? entry.code : name)),
);

/**
 * A new organization starts after this many requests, because by then the requests have deleted most resources of the
 * old one.
 */
const IN_ONE_ORG = 2_000;

let service: TestService;

beforeAll(async () => {
  service = await startTestService({ settings: { rateLimit: 0, waitBudgetMs: 100 } });
});
afterAll(() => service.close());

/** Makes an organization with one resource of each kind, and returns the ids and keys. */
async function makeSubject(): Promise<{ ids: string[]; keys: string[] }> {
  const { client, sandbox, volume, event, webhook } = await makeFixture(service);
  const make = (labels: Record<string, string>) =>
    createKey(service.ctx.pool, client.org.id, 'spare', operator('test'), {
      ...FULL_ACCESS,
      ...(labels['team'] === undefined ? {} : { scopes: ['sandboxes:write'], labels }),
    });
  const [spare, narrowed] = [await make({}), await make({ team: 'ml' })];
  const ids = [sandbox.id, sandbox.name, volume.id, event.id, spare.id, webhook.id, webhook.delivery];
  return { ids, keys: [client.key, client.key, client.key, narrowed.key] };
}

/** Sends a request, reads the answer and measures the time. An endless answer is read up to its head. */
async function send({ method, path, headers, body }: FuzzRequest): Promise<Answer & { millis: number }> {
  const began = performance.now();
  const response = await fetch(`${service.url}${path}`, {
    method,
    headers: { 'content-type': 'application/json', ...headers },
    ...(body === undefined || method === 'GET' || method === 'HEAD' ? {} : { body }),
  });
  const { status, headers: answered } = response;
  if (/event-stream/.test(answered.get('content-type') ?? '')) {
    await response.body?.cancel();
    return { status, headers: answered, text: '', body: undefined, millis: performance.now() - began };
  }
  const text = await response.text();
  const json = answered.get('content-type')?.startsWith('application/json') === true && text !== '';
  const millis = performance.now() - began;
  return { status, headers: answered, text, body: json ? JSON.parse(text) : undefined, millis };
}

function check(request: FuzzRequest, answer: Answer): void {
  const { method } = request;
  // The path as sent: fetch removes the segments `.` and `..`.
  const path = new URL(request.path, service.url).pathname;
  expect(answer.headers.get('x-request-id')).toMatch(/^[\w.:-]+$/);
  // This installation lacks some features, and answers 501 for them.
  if (answer.status !== 501 && !isAway(answer)) expect(answer.status, answer.text).toBeLessThan(500);
  if (answer.status >= 400 && method !== 'HEAD') {
    expect(answer.headers.get('content-type')).toBe('application/json; charset=utf-8');
    // A refused message of MCP is a message of JSON-RPC, whose codes are numbers.
    const isMessage = path === '/mcp' && 'jsonrpc' in answer.body;
    expect(Object.keys(answer.body)).toEqual(isMessage ? ['jsonrpc', 'error', 'id'] : ['error']);
    if (isMessage) expect(answer.body.error.code).toBeLessThan(0);
    else expect(CODES).toContain(answer.body.error.code);
    expect(answer.body.error.message.length).toBeGreaterThan(3);
    expect(answer.text).not.toMatch(/\bat .*\.[jt]s:\d+|node_modules|select .* from /);
  }
  // No operation documents 405 and route_not_found.
  const routed = answer.status !== 405 && answer.body?.error?.code !== 'route_not_found';
  const declared = operations.some(({ method: known }) => known === method);
  if (routed && declared && answer.body !== undefined) expectDocumented(method, path, answer);
}

/** The ready snapshot of the subject is on an engine of no process, so exports of it are refused. */
const isAway = ({ body }: Answer) => /^the worker of .* is away/.test(String(body?.error?.message));

/** On a machine that stalls, the worker may lose its lease for a moment. The answer says so, and to try again. */
async function onceReady(
  request: FuzzRequest,
  first: Awaited<ReturnType<typeof send>>,
): Promise<Awaited<ReturnType<typeof send>>> {
  if (first.body?.error?.code !== 'not_ready' || isAway(first)) return first;
  return until(
    () => send(request),
    ({ body }) => body?.error?.code !== 'not_ready',
  );
}

test(
  'random requests are answered in time, with the envelope, and never with 5xx',
  async () => {
    const statuses = new Map<number, number>();
    let slowest = 0;
    const askAll = async (requests: FuzzRequest[]) => {
      const answers = await Promise.all(requests.map((request) => send(request)));
      for (const [index, first] of answers.entries()) {
        const answer = await onceReady(requests[index]!, first);
        statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1);
        check(requests[index]!, answer);
        const millis = answer.millis < SLOW_MS ? answer.millis : await againAlone(requests[index]!);
        slowest = Math.max(slowest, millis);
        expect(millis, JSON.stringify(requests[index])).toBeLessThan(SLOW_MS);
      }
    };
    console.log(`fuzz: SANDKEEP_TEST_FUZZ_SEED=${SEED}, ${BUDGET.text}`);
    let asked = 0;
    for (let seed = SEED; BUDGET.left(asked) > 0; seed += 1) {
      const { ids, keys } = await makeSubject();
      const atOnce = fc.array(fuzzRequest(ids, keys), { minLength: AT_ONCE, maxLength: AT_ONCE });
      for (let inOrg = 0; inOrg < IN_ONE_ORG && BUDGET.left(asked) > 0;) {
        const numRuns = Math.ceil(Math.min(BATCH, BUDGET.left(asked)) / AT_ONCE);
        inOrg += numRuns * AT_ONCE;
        asked += numRuns * AT_ONCE;
        try {
          await fc.assert(fc.asyncProperty(atOnce, askAll), { numRuns, seed: seed * IN_ONE_ORG + inOrg });
        } catch (cause) {
          const again = `SANDKEEP_TEST_FUZZ_SEED=${seed} SANDKEEP_TEST_FUZZ_RUNS=${inOrg} npx vitest run test/api/http/fuzz.slow.test.ts`;
          throw new Error(`${(cause as Error).message}\n\nagain: ${again}`, { cause });
        }
      }
    }
    expect(asked).toBeGreaterThanOrEqual(BUDGET.least);
    // Enough requests succeed, so authentication did not refuse everything.
    expect(statuses.get(200) ?? 0).toBeGreaterThan(asked / 20);
    console.log(`fuzz: ${asked} requests, slowest ${Math.round(slowest)} ms,`, Object.fromEntries(statuses));
  },
  BUDGET.timeoutMs,
);

/** A busy machine delays single answers, so this takes the least of several sequential attempts. */
async function againAlone(request: FuzzRequest): Promise<number> {
  let least = Infinity;
  for (let count = 0; count < MOST_ATTEMPTS && least >= SLOW_MS; count += 1) {
    least = Math.min(least, (await send(request)).millis);
  }
  return least;
}
