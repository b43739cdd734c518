import type { Duplex } from 'node:stream';
import pg from 'pg';
import { to as copyTo, type CopyToStreamQuery } from 'pg-copy-streams';
import { wantedCatalogue } from '../../db/catalogue.js';
import type { Pool } from '../../db/pool.js';
import { inTransaction, type Transaction } from '../../db/transaction.js';
import { describeDatabase, OWN_TABLES, type CopiedTable, type DatabaseDescription } from './description.js';

const { escapeIdentifier } = pg;
const SNAPSHOT_ATTEMPTS = 5;

export interface Snapshot {
  tx: Transaction;
  description: DatabaseDescription;
  /** Tables that are not of this service. */
  foreign: string[];
}

/** The tables changed between the look at their names and the snapshot. */
class TablesChanged extends Error {}

/**
 * Runs `work` in one read-only snapshot of every table. The tables are locked against changes of their form and against
 * dropped partitions, but not against writes.
 */
export async function inSnapshot<T>(pool: Pool, work: (snapshot: Snapshot) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    const names = await tableNames(pool);
    const known = new Set(names.filter((name) => isOurs(name)));
    try {
      return await inTransaction(
        pool,
        async (tx) => {
          await tx.query('set transaction isolation level repeatable read, read only');
          // The first statement that reads takes the snapshot, and a lock reads nothing.
          const list = [...known].map((name) => `only ${escapeIdentifier(name)}`).join(', ');
          await tx.query(`lock table ${list} in access share mode`);
          const description = await describeDatabase(tx, known);
          if (description.tables.length !== known.size) throw new TablesChanged();
          return work({ tx, description, foreign: names.filter((name) => !known.has(name)) });
        },
        { unhurried: true },
      );
    } catch (error) {
      if (!(error instanceof TablesChanged) || attempt === SNAPSHOT_ATTEMPTS) throw error;
    }
  }
}

export interface CopiedRows {
  content: AsyncIterable<Buffer>;
  /** After the content. */
  count: () => number;
}

/** The rows of a table in the text format of COPY, which every version of PostgreSQL reads. */
export function copyRows(tx: Transaction, { name, columns }: CopiedTable): CopiedRows {
  const list = columns.map((column) => escapeIdentifier(column)).join(', ');
  const rows = tx.query(copyTo(`copy (select ${list} from ${escapeIdentifier(name)}) to stdout`));
  return { content: orBroken(tx, rows), count: () => rows.rowCount };
}

/** A reader that leaves early ends the connection, which would send the other rows before it answers again. */
async function* orBroken(tx: Transaction, rows: CopyToStreamQuery): AsyncGenerator<Buffer> {
  let isWhole = false;
  try {
    yield* rows as AsyncIterable<Buffer>;
    isWhole = true;
  } finally {
    if (!isWhole) (tx as unknown as { connection: { stream: Duplex } }).connection.stream.destroy();
  }
}

async function tableNames(pool: Pool): Promise<string[]> {
  const { rows } = await pool.query<{ name: string }>(`${OWN_TABLES} order by 2`);
  return rows.map(({ name }) => name);
}

let ours: Set<string> | undefined;

function isOurs(table: string): boolean {
  ours ??= new Set(
    Object.keys(wantedCatalogue()).flatMap(
      (object) => /^column \w+ of (?:partitioned )?table (\w+)$/.exec(object)?.[1] ?? [],
    ),
  );
  return ours.has(table);
}
