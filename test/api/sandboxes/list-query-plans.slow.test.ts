import type { PoolClient } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Sql, Statement } from '../../../src/db/pool.js';
import { openRequests, type Requests } from '../../../src/db/request-connections.js';
import {
  COUNTED,
  countLabels,
  getSandboxPage,
  mergingLabels,
  type SandboxFilter,
} from '../../../src/sandboxes/reads/list-queries.js';
import { getSandboxText, getSandboxTexts } from '../../../src/sandboxes/queries.js';
import type { Client } from '../../support/client.js';
import { literal } from '../../support/query-plans.js';
import { startTestService, type TestService } from '../../support/service.js';

const SANDBOXES = 30_000;

let service: TestService;
let client: Client;
let requests: Requests;
let reads: Sql;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  client = await service.newOrg();
  requests = openRequests(service.database, true, () => undefined);
  ({ reads } = requests.of(client.org.id));
});
afterAll(async () => {
  await requests.close();
  await service.close();
});

const none: SandboxFilter = {
  labels: [],
  statuses: [],
  namePrefix: undefined,
  createdAfter: undefined,
  createdBefore: undefined,
};
const NOW = '2026-03-01T00:00:00.000000Z';
const NOBODY = '01890000-0000-7000-8000-000000000000';
const rare: [string, string] = ['kind', 'rare'];
const common: [string, string] = ['kind', 'common'];
const left: [string, string] = ['side', 'left'];
const right: [string, string] = ['hand', 'right'];
/** These labels are on every sandbox. */
const everywhere = Array.from({ length: 16 }, (_, index): [string, string] => [`all-${index}`, 'yes']);

/** The statement of each kind of read. */
const short = { whole: false };
const READS: Record<string, Read> = {
  'get one': (sql, orgId) => getSandboxText(sql, orgId, { id: NOBODY }, short),
  'get by name': (sql, orgId) => getSandboxText(sql, orgId, { name: 'box-1' }, short),
  'get several': (sql, orgId) => getSandboxTexts(sql, orgId, 'id', [NOBODY, NOBODY]),
  'get several by name': (sql, orgId) => getSandboxTexts(sql, orgId, 'name', ['box-1', 'box-2']),
  newest: (sql, orgId) => getSandboxPage(sql, orgId, { filter: none, sort: '-created_at', limit: 21 }),
  oldest: (sql, orgId) => getSandboxPage(sql, orgId, { filter: none, sort: 'created_at', limit: 101 }),
  'by name': (sql, orgId) =>
    getSandboxPage(sql, orgId, { filter: none, sort: 'name', after: ['box-1', NOBODY], limit: 21 }),
  'a later page': (sql, orgId) =>
    getSandboxPage(sql, orgId, { filter: none, sort: '-created_at', after: [NOW, NOBODY], limit: 21 }),
  'of a time': (sql, orgId) =>
    getSandboxPage(sql, orgId, {
      filter: { ...none, createdAfter: NOW, createdBefore: NOW },
      sort: '-created_at',
      limit: 21,
    }),
  'a rare label': (sql, orgId) =>
    getSandboxPage(sql, orgId, { filter: { ...none, labels: [rare] }, sort: '-created_at', limit: 21 }),
  'a common label': (sql, orgId) =>
    getSandboxPage(sql, orgId, { filter: { ...none, labels: [common] }, sort: '-created_at', limit: 21 }),
  'a later page of a label, oldest first': (sql, orgId) =>
    getSandboxPage(sql, orgId, {
      filter: { ...none, labels: [common] },
      sort: 'created_at',
      after: [NOW, NOBODY],
      limit: 21,
    }),
  'labels that never meet': (sql, orgId) =>
    getSandboxPage(sql, orgId, {
      filter: { ...none, labels: [left, right] },
      sort: '-created_at',
      limit: 21,
    }),
  'how many have a label': (sql, orgId) => countLabels(sql, orgId, [rare, common]),
};

type Read = (sql: Sql, orgId: string) => Promise<unknown>;

async function statementOf(read: Read): Promise<Statement> {
  const asked: Statement[] = [];
  const recorder: Sql = {
    query(statement) {
      if (typeof statement === 'string') throw new Error('a statement that is not prepared');
      asked.push(statement);
      return Promise.resolve({ rows: [], rowCount: 0 });
    },
  };
  await read(recorder, client.org.id);
  expect(asked.length).toBe(1);
  expect(asked[0]!.name).toBeDefined();
  return asked[0]!;
}

interface Node {
  'Node Type': string;
  'Actual Rows'?: number;
  'Actual Loops'?: number;
  'Rows Removed by Filter'?: number;
  Plans?: Node[];
}

/**
 * `prepared`: the generic plan of these connections for any values. `given`: the executed plan for the actual values.
 */
const HOW = ['prepared', 'given'] as const;

async function planOf(name: string, how: (typeof HOW)[number]): Promise<Node[]> {
  const { text, values } = await statementOf(READS[name]!);
  const explain = async () => {
    const explained = (of: Statement) => reads.query<{ 'QUERY PLAN': [{ Plan: Node }] }>(of);
    if (how === 'given') return explained({ text: `explain (analyze, format json) ${text}`, values });
    // Both statements must use the same connection.
    await reads.query(`prepare looked_at as ${text}`);
    const execute = `execute looked_at (${values.map(literal).join(', ')})`;
    const plan = await explained({ text: `explain (format json) ${execute}`, values: [] });
    await reads.query('deallocate looked_at');
    return plan;
  };
  const { rows } = await explain();
  return nodesOf(rows[0]!['QUERY PLAN'][0].Plan);
}

function nodesOf(node: Node): Node[] {
  return [node, ...(node.Plans ?? []).flatMap(nodesOf)];
}

// Incremental Sort is allowed: names are unique, and it only orders the rows of one name.
const WRONG = new Set(['Seq Scan', 'Sort', 'Bitmap Heap Scan', 'Hash Join', 'Merge Join']);

async function expectGood(name: string): Promise<void> {
  for (const how of HOW) {
    const types = (await planOf(name, how)).map((node) => node['Node Type']);
    expect(types.filter((type) => WRONG.has(type))).toEqual([]);
  }
}

describe('in an empty store', () => {
  test.each(Object.keys(READS))('%s uses the indexes in their order', (name) => expectGood(name));
});

async function loadSandboxes(tx: PoolClient): Promise<void> {
  // Replica mode skips the triggers, for a fast load. Half a million labels take minutes on a busy machine.
  await tx.query('set session_replication_role = replica; set statement_timeout = 0');
  await tx.query(
    `insert into sandboxes (org_id, id, name, slug, status, ephemeral, created_at, changed_at)
     select $1, gen_random_uuid(), 'box-' || n, 'plans-' || n, 'stopped', false,
       '2026-01-01'::timestamptz + n * interval '1 minute', now()
     from generate_series(1, $2::int) as n`,
    [client.org.id, SANDBOXES],
  );
  await tx.query(
    `insert into sandbox_labels (org_id, key, value, created_at, sandbox_id)
     select org_id, label.key, label.value, created_at, id
     from (select *, row_number() over (order by created_at) as n from sandboxes where org_id = $1) s
     join lateral (values ('kind', case when n % 3000 = 0 then 'rare' when n % 2 = 0 then 'common' else n::text end),
       ('side', case when n % 10 = 0 then 'left' end), ('hand', case when n % 10 = 5 then 'right' end)
     ) as label (key, value) on label.value is not null
     union all
     select org_id, label, 'yes', created_at, id
     from sandboxes cross join unnest($2::text[]) as label where org_id = $1`,
    [client.org.id, everywhere.map(([key]) => key)],
  );
  await tx.query('vacuum analyze sandboxes');
  await tx.query('vacuum analyze sandbox_labels');
}

describe(`with ${SANDBOXES} sandboxes`, () => {
  beforeAll(async () => {
    const load = await service.ctx.pool.connect();
    try {
      await loadSandboxes(load);
    } finally {
      load.release(true);
    }
  });

  test.each(Object.keys(READS))('%s uses the indexes in their order', (name) => expectGood(name));

  test.each(Object.keys(READS).filter((name) => name !== 'labels that never meet'))(
    '%s reads at most one page',
    async (name) => {
      for (const node of await planOf(name, 'given')) {
        const {
          'Actual Rows': rows = 0,
          'Actual Loops': loops = 1,
          'Rows Removed by Filter': removed = 0,
        } = node;
        expect((rows + removed) * loops).toBeLessThanOrEqual(400);
      }
    },
  );

  describe('the indexes of labels that are all common', () => {
    const several = [left, right, common] satisfies SandboxFilter['labels'];
    const bounds = { createdAfter: '2026-01-02T00:00:00.000000Z', createdBefore: NOW };
    const walks: Record<string, Read> = {
      two: (sql, orgId) =>
        getSandboxPage(sql, orgId, {
          filter: { ...none, labels: [left, right] },
          sort: '-created_at',
          limit: 21,
          sideBySide: true,
        }),
      'three, of a time, a later page': (sql, orgId) =>
        getSandboxPage(sql, orgId, {
          filter: { ...none, ...bounds, labels: several },
          sort: 'created_at',
          after: ['2026-01-03T00:00:00.000000Z', NOBODY],
          limit: 21,
          sideBySide: true,
        }),
      'eight that all have': (sql, orgId) =>
        getSandboxPage(sql, orgId, {
          filter: { ...none, labels: everywhere.slice(0, 8) },
          sort: '-created_at',
          limit: 21,
          sideBySide: true,
        }),
      'sixteen that all have': (sql, orgId) =>
        getSandboxPage(sql, orgId, {
          filter: { ...none, labels: everywhere },
          sort: '-created_at',
          after: [NOW, NOBODY],
          limit: 21,
          sideBySide: true,
        }),
    };
    const COUNT: Record<string, number> = {
      two: 2,
      'three, of a time, a later page': 3,
      'eight that all have': 8,
      'sixteen that all have': 16,
    };

    test.each(Object.keys(walks).flatMap((name) => HOW.map((how) => [name, how] as const)))(
      'are merged in step: %s, %s',
      async (name, how) => {
        const { text, values } = await statementOf(walks[name]!);
        const explained = await mergingLabels(requests.of(client.org.id).pool, async (tx) => {
          await tx.query(
            `set local plan_cache_mode = force_${how === 'prepared' ? 'generic' : 'custom'}_plan`,
          );
          await tx.query(`prepare looked_at as ${text}`);
          const execute = `execute looked_at (${values.map(literal).join(', ')})`;
          const { rows } = await tx.query<{ 'QUERY PLAN': [{ Plan: Node }] }>(
            `explain (analyze, format json) ${execute}`,
          );
          await tx.query('deallocate looked_at');
          return rows[0]!['QUERY PLAN'][0].Plan;
        });
        const nodes = nodesOf(explained);
        const types = nodes.map((node) => node['Node Type']);
        expect(types.filter((type) => type === 'Merge Join')).toHaveLength(COUNT[name]! - 1);
        expect(types.filter((type) => type !== 'Merge Join' && WRONG.has(type))).toEqual([]);
        // A Materialize node would copy every row, which takes as long as the scan.
        expect(types).not.toContain('Materialize');
        const places = nodes.filter((node) => node['Node Type'] === 'Index Only Scan');
        expect(places).toHaveLength(COUNT[name]!);
        // Each index is scanned at most once.
        for (const node of places) {
          expect(node['Actual Loops']).toBeLessThanOrEqual(1);
          // Each scan ends with the page.
          if (name.endsWith('all have')) expect(node['Actual Rows']).toBeLessThanOrEqual(400);
        }
      },
    );
  });

  test('a label is counted up to a limit, and the scan starts with the rarest label', async () => {
    const labels = [common, rare, ['nothing', 'has it']] satisfies [string, string][];
    const counts = await countLabels(reads, client.org.id, labels);
    expect(counts).toEqual([COUNTED, SANDBOXES / 3000, 0]);
    const { body } = await client.get('/v1/sandboxes', {
      labels: JSON.stringify(Object.fromEntries([left, common])),
    });
    expect(body.data.length).toBe(20);
    const never = await client.get('/v1/sandboxes', {
      labels: JSON.stringify(Object.fromEntries([left, right])),
    });
    expect(never.body).toEqual({ data: [], has_more: false, next_cursor: null });
  });
});
