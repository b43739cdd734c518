import fc from 'fast-check';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from './support/client.js';
import { operations } from './support/openapi.js';
import { startTestService, type TestService } from './support/service.js';
import { fullRequest } from './support/specs.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  client = await service.newOrg();
});
afterAll(() => service.close());

test('whatever is thrown at it, it answers with an envelope and never with 5xx', async () => {
  const value = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 40 }),
    fc.constantFrom(
      '0',
      '-1',
      'null',
      '{}',
      '[]',
      "'",
      '"',
      '%',
      '\\',
      '\0',
      '../',
      uuidv7(),
      '1e999',
      '9'.repeat(400),
    ),
  );
  const json = fc.jsonValue({ maxDepth: 4 });
  const names = [
    'limit',
    'cursor',
    'labels',
    'status',
    'since',
    'until',
    'event_type',
    'resource_id',
    'start',
    'wait_for',
  ];
  const mutated = fc
    .tuple(fc.constantFrom(...Object.keys(fullRequest('x', 'y'))), json)
    .map(([key, item]) => ({ ...fullRequest('fuzz', 'none'), [key]: item }));
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...operations),
      value,
      fc.dictionary(fc.oneof(fc.constantFrom(...names), value), value, { maxKeys: 3 }),
      fc.oneof(json, mutated),
      async ({ method, path }, segment, query, body) => {
        const answer = await client.request(
          method,
          path.replace(/\{\w+\}/, encodeURIComponent(segment) || 'x'),
          {
            query: Object.entries(query)
              .map(([key, item]) => `${encodeURIComponent(key)}=${encodeURIComponent(item)}`)
              .join('&'),
            ...(method === 'POST' || method === 'PATCH' ? { body: JSON.stringify(body) } : {}),
          },
        );
        expect(answer.status, answer.text).toBeLessThan(500);
        if (answer.status >= 400) expect(answer.body.error.message.length).toBeGreaterThan(5);
      },
    ),
    { numRuns: Number(process.env['SANDKEEP_FUZZ_RUNS'] ?? 1_000) },
  );
}, 180_000);
