import { appliedMigrations, type AppliedMigration } from '../../db/migrate.js';
import type { Sql } from '../../db/pool.js';

/** Everything that a copy of a database needs beside the rows. */
export interface DatabaseDescription {
  instanceId: string;
  /** The version of the server. */
  server: string;
  /** In the notation of PostgreSQL: its functions tell whether a transaction is in the copy. */
  snapshot: string;
  migrations: AppliedMigration[];
  /** In the order of their references. */
  tables: CopiedTable[];
  /** The months of `events` that have a partition. */
  eventPartitions: string[];
  identities: Identity[];
}

export interface CopiedTable {
  name: string;
  columns: string[];
}

interface Identity {
  table: string;
  column: string;
  last: string | null;
}

/** Tables that belong to no extension and are no partitions. */
export const OWN_TABLES = `
  select c.oid, c.relname as name from pg_class c
  where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
    and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')`;

/** Generated columns are left out. */
const COLUMNS = `
  select t.name, array_agg(a.attname::text order by a.attnum) as columns
  from (${OWN_TABLES}) t
  join pg_attribute a on a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
  group by t.name order by t.name`;

const REFERENCES = `
  select distinct t.name as of, f.name as to
  from pg_constraint k
  join (${OWN_TABLES}) t on t.oid = k.conrelid
  join (${OWN_TABLES}) f on f.oid = k.confrelid
  where k.contype = 'f' and k.conrelid <> k.confrelid`;

const IDENTITIES = `
  select t.name as table, a.attname::text as column,
    pg_sequence_last_value(pg_get_serial_sequence(quote_ident(t.name), a.attname)::regclass)::text as last
  from (${OWN_TABLES}) t
  join pg_attribute a on a.attrelid = t.oid and a.attidentity <> ''
  order by 1, 2`;

const PARTITIONS = `
  select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
  where i.inhparent = 'events'::regclass and c.relname ~ '^events_[0-9]{4}_[0-9]{2}$' order by 1`;

/** Reads the snapshot of a transaction. `known`: the tables to copy; null: all. */
export async function describeDatabase(
  sql: Sql,
  known: ReadonlySet<string> | null = null,
): Promise<DatabaseDescription> {
  const { rows: instance } = await sql.query<{ id: string; server: string; snapshot: string }>(
    `select id, current_setting('server_version') as server, pg_current_snapshot()::text as snapshot from instance`,
  );
  const { rows: tables } = await sql.query<CopiedTable & Record<string, unknown>>(COLUMNS);
  const { rows: references } = await sql.query<{ of: string; to: string }>(REFERENCES);
  const { rows: partitions } = await sql.query<{ name: string }>(PARTITIONS);
  const { rows: identities } = await sql.query<Identity & Record<string, unknown>>(IDENTITIES);
  const isCopied = ({ name }: { name: string }) => known === null || known.has(name);
  return {
    instanceId: instance[0]!.id,
    server: instance[0]!.server,
    snapshot: instance[0]!.snapshot,
    migrations: await appliedMigrations(sql),
    tables: inOrderOf(references, tables.filter(isCopied)),
    eventPartitions: partitions.map(({ name }) => name),
    identities: identities.filter(({ table }) => isCopied({ name: table })),
  };
}

/** A table follows each table to which it refers. */
function inOrderOf(
  references: readonly { of: string; to: string }[],
  tables: readonly CopiedTable[],
): CopiedTable[] {
  const ordered = new Map<string, CopiedTable>();
  const names = new Set(tables.map(({ name }) => name));
  const isReady = ({ name }: CopiedTable) =>
    references.every(({ of, to }) => of !== name || !names.has(to) || ordered.has(to));
  while (ordered.size < tables.length) {
    const ready = tables.filter((table) => !ordered.has(table.name) && isReady(table));
    if (ready.length === 0) throw new Error('the tables refer to each other in a circle');
    for (const table of ready) ordered.set(table.name, table);
  }
  return [...ordered.values()];
}
