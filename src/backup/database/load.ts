import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import pg from 'pg';
import { from as copyFrom } from 'pg-copy-streams';
import { setClosed } from '../../db/instance-queries.js';
import { completeSchema, createSchema, requireKnownMigrations } from '../../db/migrate.js';
import { sqlState, type Pool } from '../../db/pool.js';
import { inTransaction, type Transaction } from '../../db/transaction.js';
import { ExplainedError } from '../../lib/explained-error.js';
import type { CopiedTable, DatabaseDescription } from './description.js';

const { escapeIdentifier } = pg;

/** `closed`: the reason of the closed database, until it is opened. */
export interface Load {
  description: DatabaseDescription;
  closed: string;
  rowsOf(table: CopiedTable): AsyncIterable<Buffer>;
  /** Before the commit: throws when the rows are not all. */
  check(table: string, rows: number): void;
}

/**
 * Loads a copy into an empty database, in one transaction: a killed process leaves the database empty. The schema is
 * first that of the copy; the migrations since then follow with the rows in place.
 */
export async function loadDatabase(pool: Pool, load: Load): Promise<Map<string, number>> {
  const { description } = load;
  requireKnownMigrations(description.migrations);
  return inTransaction(
    pool,
    async (tx) => {
      await createSchema(tx, description.migrations.length);
      await tx.query('delete from schema_migrations');
      for (const partition of description.eventPartitions) await createPartition(tx, partition);
      const counts = new Map<string, number>();
      for (const table of description.tables) {
        await loadTable(tx, table, load.rowsOf(table));
        const rows = await countRows(tx, table);
        load.check(table.name, rows);
        counts.set(table.name, rows);
      }
      for (const { table, column, last } of description.identities) {
        if (last === null) continue;
        await tx.query('select setval(pg_get_serial_sequence(quote_ident($1), $2), $3::bigint)', [
          table,
          column,
          last,
        ]);
      }
      await completeSchema(tx, description.migrations.length);
      await setClosed(tx, load.closed);
      return counts;
    },
    { unhurried: true },
  );
}

async function createPartition(tx: Transaction, name: string): Promise<void> {
  const month = /^events_(\d{4})_(\d{2})$/.exec(name);
  if (!month) throw new ExplainedError(`the copy has a partition with the unexpected name "${name}"`);
  await tx.query('select make_event_partition($1::timestamptz)', [`${month[1]}-${month[2]}-01T00:00:00Z`]);
}

/** The triggers would write rows that are in the copy as well. Foreign keys are checked. */
async function loadTable(
  tx: Transaction,
  { name, columns }: CopiedTable,
  rows: AsyncIterable<Buffer>,
): Promise<void> {
  const table = escapeIdentifier(name);
  try {
    await tx.query(`alter table ${table} disable trigger user`);
    const list = columns.map((column) => escapeIdentifier(column)).join(', ');
    const target = tx.query(copyFrom(`copy ${table} (${list}) from stdin`));
    await pipeline(Readable.from(rows, { objectMode: false }), target);
    await tx.query(`alter table ${table} enable trigger user`);
  } catch (cause) {
    if (sqlState(cause) === undefined) throw cause;
    throw new ExplainedError(`the rows of ${name} cannot be loaded: ${(cause as Error).message}`, { cause });
  }
}

async function countRows(tx: Transaction, { name }: CopiedTable): Promise<number> {
  const { rows } = await tx.query<{ count: number }>(
    `select count(*) as count from ${escapeIdentifier(name)}`,
  );
  return rows[0]!.count;
}

/** True without tables, views, functions and types of anybody but an extension. */
export async function isEmptyDatabase(pool: Pool): Promise<boolean> {
  const { rows } = await pool.query<{ found: number }>(`
    select (select count(*) from pg_class c where c.relnamespace = 'public'::regnamespace
        and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype in ('e', 'i')))
      + (select count(*) from pg_proc p where p.pronamespace = 'public'::regnamespace
        and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e'))
      as found`);
  return rows[0]!.found === 0;
}

/** Removes the tables and functions of a copy. The caller knows by `closed` that nothing else was there. */
export async function removeCopy(pool: Pool): Promise<void> {
  await inTransaction(
    pool,
    async (tx) => {
      await tx.query(`
        do $$
        declare
          object record;
        begin
          for object in
            select c.oid::regclass as name from pg_class c
            where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
              and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')
          loop
            execute format('drop table %s cascade', object.name);
          end loop;
          for object in
            select p.oid::regprocedure as name from pg_proc p
            where p.pronamespace = 'public'::regnamespace
              and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
          loop
            execute format('drop function if exists %s cascade', object.name);
          end loop;
        end
        $$`);
    },
    { unhurried: true },
  );
}
