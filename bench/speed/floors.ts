import { SingleBar } from 'cli-progress';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { connectAlone } from '../../src/db/pool.js';
import { ask, type Api } from './api.js';
import { copyRows, type Cell } from './copy.js';
import { MEASURES, type Subject } from './measures.js';
import { startServer, type Server } from './processes.js';
import type { Opened, Side } from './sides.js';
import type { Store } from './store.js';

/** The answers of floor A, by path. */
export interface Bodies {
  bodies: Record<string, string>;
}

/** The statements of floor B on the database at `url`, by path. */
export interface Queries {
  url: string;
  queries: Record<string, { name: string; text: string; values: unknown[]; page: boolean }>;
}

/** More of the newest events than any page reads. */
const EVENTS = 5_000;

/**
 * The tables of floor B hold the text of each item in the form of the service, and the columns of its filters. They
 * hold one organization and have no policies.
 */
const TABLES = `
  create schema bench;
  create table bench.sandboxes (id uuid primary key, created_at timestamptz not null, body text not null);
  create index on bench.sandboxes (created_at desc, id desc);
  create table bench.labels (key text collate "C", value text collate "C", created_at timestamptz, id uuid,
    primary key (key, value, created_at, id));
  create table bench.events (id uuid not null, occurred_at timestamptz not null, event_type text collate "C" not null,
    body text not null);
  create index on bench.events (event_type, occurred_at desc, id desc)`;

const STATEMENTS: Record<string, string> = {
  one: 'select body from bench.sandboxes where id = $1',
  page: 'select body from bench.sandboxes order by created_at desc, id desc limit $1',
  label: `select s.body from bench.labels f join bench.sandboxes s on s.id = f.id
    where f.key = $1 and f.value = $2 order by f.created_at desc, f.id desc limit $3`,
  labels: `select s.body from bench.labels f join bench.sandboxes s on s.id = f.id
    join bench.labels l on l.created_at = f.created_at and l.id = f.id
    where f.key = $1 and f.value = $2 and l.key = $3 and l.value = $4
    order by f.created_at desc, f.id desc limit $5`,
  events: `select body from bench.events where event_type = $1 and occurred_at >= $2 and occurred_at <= $3
    order by occurred_at desc, id desc limit $4`,
};

export interface Floors {
  /** The bytes of the service, from memory. */
  a: Server;
  /** The text of the answer, from the database. */
  b: Server;
}

export async function startFloors(opened: Opened, { store, api, subject }: Side): Promise<Floors> {
  const { rows } = await store.pool.query("select to_regclass('bench.events') is not null as filled");
  if (rows[0].filled !== true) await fill(store, api, subject);
  const folder = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  opened.add(async () => Promise.resolve(rmSync(folder, { recursive: true })));
  const bodies: Record<string, string> = {};
  const queries: Queries['queries'] = {};
  for (const { paths, floor } of MEASURES) {
    for (const path of paths(subject)) {
      bodies[path] = await ask(api, path);
      queries[path] = {
        name: floor.statement,
        text: STATEMENTS[floor.statement]!,
        values: floor.values(path),
        page: floor.statement !== 'one',
      };
    }
  }
  const plans: { a: Bodies; b: Queries } = { a: { bodies }, b: { url: store.url, queries } };
  const start = async (which: 'a' | 'b') => {
    const file = join(folder, which);
    writeFileSync(file, JSON.stringify(plans[which]));
    const server = await startServer([fileURLToPath(new URL('floor-server.js', import.meta.url)), file]);
    opened.add(() => server.stop());
    return server;
  };
  const [a, b] = [await start('a'), await start('b')];
  const floor = { host: b.host, port: b.port, key: '' };
  // A store that was measured earlier may have changed since.
  if ((await differing(api, subject, floor)) !== undefined) await fill(store, api, subject);
  const name = await differing(api, subject, floor);
  if (name !== undefined) throw new Error(`floor B gives something else than the service for "${name}"`);
  return { a, b };
}

/** The measure for which floor B returns other items than the service. */
async function differing(api: Api, subject: Subject, floor: Api): Promise<string | undefined> {
  for (const { name, paths } of MEASURES) {
    const path = paths(subject)[0]!;
    const itemsOf = async (server: Api) => {
      const body = JSON.parse(await ask(server, path)) as { data?: unknown };
      return JSON.stringify(body.data ?? body);
    };
    if ((await itemsOf(api)) !== (await itemsOf(floor))) return name;
  }
  return undefined;
}

/** Fills the tables from the answers of the service, page by page. */
async function fill(store: Store, api: Api, { until }: Subject): Promise<void> {
  const client = await connectAlone(store.address);
  await client.query('set statement_timeout = 0');
  const bar = new SingleBar({
    format: 'filling the tables of floor B: {value} items',
    stream: process.stderr,
    hideCursor: true,
  });
  bar.start(0, 0);
  try {
    await client.query('drop schema if exists bench cascade');
    await client.query(TABLES);
    const labels: Cell[][] = [];
    for await (const items of pagesOf(api, '/v1/sandboxes?limit=100')) {
      const cells = items.map((item) => [item.id, item.created_at, JSON.stringify(item)]);
      await copyRows(client, 'bench.sandboxes (id, created_at, body)', cells);
      for (const { id, created_at, spec } of items) {
        for (const [key, value] of Object.entries(spec?.labels ?? {}))
          labels.push([key, value, created_at, id]);
      }
      bar.increment(items.length);
    }
    await copyRows(client, 'bench.labels (key, value, created_at, id)', labels);
    let left = EVENTS;
    for await (const items of pagesOf(api, `/v1/events?limit=100&until=${new Date(until).toISOString()}`)) {
      const cells = items.map((item) => [item.id, item.timestamp, item.event_type, JSON.stringify(item)]);
      await copyRows(client, 'bench.events (id, occurred_at, event_type, body)', cells);
      bar.increment(items.length);
      left -= items.length;
      if (left <= 0) break;
    }
    for (const name of ['sandboxes', 'labels', 'events']) await client.query(`vacuum analyze bench.${name}`);
  } finally {
    bar.stop();
    await client.end();
  }
}

/** The fields of sandboxes and events that are read. */
interface Item {
  id: string;
  created_at: string;
  timestamp: string;
  event_type: string;
  spec: { labels: Record<string, string> } | null;
}

async function* pagesOf(api: Api, path: string): AsyncGenerator<Item[]> {
  for (let cursor: string | null = null; ;) {
    const text: string = await ask(
      api,
      cursor === null ? path : `${path}&cursor=${encodeURIComponent(cursor)}`,
    );
    const { data, next_cursor } = JSON.parse(text) as { data: Item[]; next_cursor: string | null };
    yield data;
    if (next_cursor === null) return;
    cursor = next_cursor;
  }
}
