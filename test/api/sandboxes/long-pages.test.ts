import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MAX_PAGE_BYTES } from '../../../src/sandboxes/reads/list.js';
import type { Client } from '../../support/client.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
/** The lengths of the variables by the name of the sandbox, in the order of creation. */
const lengths = new Map<string, number>();

/** Short, of the length that requests may have, and longer, as earlier releases stored them. */
const LENGTHS = [() => 10, () => 10, () => random(60_000), () => random(500_000), () => 2_000_000];

function random(below: number): number {
  return Math.floor(Math.random() * below);
}

beforeAll(async () => {
  service = await startTestService({ worker: false, settings: { rateLimit: 0 } });
  client = await service.newOrg();
  for (let count = 0; count < 20; count += 1) {
    const name = `box-${random(1_000_000)}-${count}`;
    const length = LENGTHS[random(LENGTHS.length)]!();
    lengths.set(name, length);
    const labels = { all: 'yes', also: 'yes' };
    expect((await client.post('/v1/sandboxes', smallRequest(name, { labels }))).status).toBe(200);
    const value = count % 2 === 0 ? 'x'.repeat(length) : randomBytes(length).toString('hex').slice(0, length);
    await service.ctx.pool.query(
      `update sandboxes set spec = jsonb_set(spec::jsonb, '{env}', $2::jsonb)::json where name = $1`,
      [name, JSON.stringify([{ key: 'LONG', value }])],
    );
  }
});
afterAll(() => service.close());

test.each([
  ['newest first', {}],
  ['oldest first', { sort: 'created_at' }],
  ['by name', { sort: 'name' }],
  ['of a label', { labels: '{"all":"yes"}' }],
  ['of a status', { status: 'created', sort: 'created_at' }],
])(
  'pages %s are short, and have every sandbox once and in order',
  async (_, query: Record<string, string>) => {
    const names = [...lengths.keys()];
    const expected =
      query['sort'] === 'name'
        ? names.toSorted()
        : query['sort'] === 'created_at'
          ? names
          : names.toReversed();
    for (const limit of [3, 100]) {
      const seen: string[] = [];
      let cursor: string | null = null;
      do {
        const { body, text, status } = await client.get('/v1/sandboxes', {
          ...query,
          limit,
          ...(cursor === null ? {} : { cursor }),
        });
        expect(status).toBe(200);
        expect(body.has_more).toBe(body.next_cursor !== null);
        expect(body.data.length).toBeGreaterThan(0);
        expect(body.data.length).toBeLessThanOrEqual(limit);
        if (body.data.length > 1) expect(text.length).toBeLessThan(MAX_PAGE_BYTES + 1_000);
        for (const { name, spec } of body.data) {
          expect(spec.env[0].value).toHaveLength(lengths.get(name)!);
          seen.push(name);
        }
        cursor = body.next_cursor;
      } while (cursor !== null);
      expect(seen).toEqual(expected);
    }
  },
);
