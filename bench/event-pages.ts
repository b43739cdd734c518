import { operator } from '../src/audit/events/actor.js';
import { addFilter, type EventFilter } from '../src/audit/events/queries.js';
import { readEventFilter, type FilterQuery } from '../src/audit/list/filter.js';
import { listEvents } from '../src/audit/list/list.js';
import { table } from '../src/cli/table.js';
import { connectAlone, type Pool } from '../src/db/pool.js';
import { Conditions } from '../src/lib/conditions.js';
import { addMillis, monthsBefore, now, startOfMonth } from '../src/lib/instant.js';
import { createOrg } from '../src/orgs/create.js';
import { openStore } from './store.js';

const MONTHS = 124;
const RECENT = 20_000;
const DAY_MS = 86_400_000;
const ASKED = 300;

const since = addMillis(now(), -7 * DAY_MS);
const PAGES: Record<string, [FilterQuery, limit: number]> = {
  'newest 20': [{}, 20],
  'newest 100': [{}, 100],
  '20 of a type': [{ event_type: ['type_3'] }, 20],
  '100 of a type': [{ event_type: ['type_3'] }, 100],
  '20 of a type in a week': [{ event_type: ['type_3'], since }, 20],
  '100 of a type in a week': [{ event_type: ['type_3'], since }, 100],
  'of a type that is not there': [{ event_type: ['nothing'] }, 20],
};

/** Prints the time of pages of events in a small store, and in one with years of history. */
export async function eventPages(events: number): Promise<void> {
  const [small, large] = [await makeStore(0), await makeStore(events)];
  const arms: Record<string, Read> = {
    small: (filter, limit) => listEvents(sourcesOf(small), small.orgId, filter, undefined, limit),
    large: (filter, limit) => listEvents(sourcesOf(large), large.orgId, filter, undefined, limit),
    plain: (filter, limit) => plainPage(large.pool, large.orgId, filter, limit),
  };
  const rows: string[][] = [];
  for (const [page, [query, limit]] of Object.entries(PAGES)) {
    const times: Record<string, number[]> = { small: [], large: [], plain: [] };
    // In turns, so that other load on the machine slows all of them.
    for (let round = 0; round < ASKED; round += 1) {
      for (const [arm, read] of Object.entries(arms)) {
        const begun = performance.now();
        await read(readEventFilter(query), limit);
        times[arm]!.push(performance.now() - begun);
      }
    }
    const at = (arm: string, part: number) => {
      const sorted = times[arm]!.toSorted((a, b) => a - b);
      return sorted[Math.floor(sorted.length * part)]!;
    };
    const [before, after] = [at('small', 0.5), at('large', 0.5)];
    const figures = [before, after, after / before, at('large', 0.99) / after, at('plain', 0.5)];
    rows.push([page, ...figures.map((figure) => figure.toFixed(2))]);
  }
  const head = [
    'page',
    `${RECENT} events, ms`,
    `${events} more, ms`,
    'ratio',
    'p99/p50',
    'all months opened, ms',
  ];
  console.log(table(head, rows));
  for (const store of [small, large]) await store.close();
}

/** Pipelined connections serve requests only. */
const sourcesOf = ({ pool }: { pool: Pool }) => ({ pool, reads: pool, now });

/** A database with the events of a day, after this many events over 124 months. */
async function makeStore(history: number) {
  const store = await openStore();
  const { pool } = store;
  const { id: orgId } = await createOrg(pool, { name: 'Bench', slug: 'bench' }, operator('bench'));
  const loader = await connectAlone(store.address);
  await loader.query('set statement_timeout = 0');
  const thisMonth = startOfMonth(now());
  const months = history > 0 ? MONTHS : 1;
  for (let month = months - 1; month >= 1; month -= 1) {
    await loader.query('select make_event_partition($1)', [monthsBefore(thisMonth, month)]);
  }
  const load = (count: number, from: string, to: string) =>
    loader.query(
      `insert into events (org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id)
       select $1, gen_random_uuid(), $2::timestamptz + n * (($3::timestamptz - $2::timestamptz) / $4), 'test', 'type_' || n % 10,
         '{"kind":"system","code":"bench","label":"Bench"}', json_build_object('pad', repeat('x', 200)), 'system', 'bench'
       from generate_series(1, $4::int) n`,
      [orgId, from, to, count],
    );
  if (history > 0) await load(history, monthsBefore(thisMonth, MONTHS - 1), thisMonth);
  await load(RECENT, addMillis(now(), -DAY_MS), now());
  // Marks the events as sealed.
  await loader.query('delete from unsealed_events');
  await loader.query('vacuum analyze');
  await loader.end();
  return { pool, orgId, close: () => store.close() };
}

type Read = (filter: EventFilter, limit: number) => Promise<unknown>;

/** The obvious statement, which is planned for every month. */
async function plainPage(pool: Pool, orgId: string, filter: EventFilter, limit: number): Promise<void> {
  const where = addFilter(
    new Conditions().add((p) => `org_id = ${p(orgId)}`),
    filter,
  );
  await pool.query(
    `select org_id, id, occurred_at, category, event_type, actor, payload from events where ${where.text}
     order by occurred_at desc, id desc limit ${where.parameter(limit + 1)}`,
    where.values,
  );
}
