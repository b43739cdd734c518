import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type pg from 'pg';
import { expect } from 'vitest';
import { baseCopiesIn, isArchived } from '../../src/backup/wal-archive/layout.js';
import { launch, inDatabase, ready, until, type Launched, type Served } from './processes.js';

export function launchArchived(dataDir: string, archive: string, ...more: readonly string[]): Launched {
  const fixed = ['--json', '--port', '0', '--runtime', 'simulated', '--log-level', 'info'];
  return launch(['serve', ...fixed, '--data-dir', dataDir, '--wal-archive-dir', archive, ...more]);
}

export async function serveArchived(
  dataDir: string,
  archive: string,
  ...more: readonly string[]
): Promise<Served> {
  return ready(launchArchived(dataDir, archive, ...more), dataDir);
}

/** The only archive in a directory. */
export function rootIn(archive: string): string {
  const names = readdirSync(archive);
  expect(names).toHaveLength(1);
  return join(archive, names[0]!);
}

/** Ends the current segment of the log. Returns its name. */
export async function switchSegment(dataDir: string): Promise<string> {
  return inDatabase(dataDir, async (client) => {
    // An empty segment is not ended.
    await client.query("select pg_logical_emit_message(false, 'test', '')");
    const { rows } = await client.query<{ name: string }>('select pg_walfile_name(pg_switch_wal()) as name');
    return rows[0]!.name;
  });
}

/** Waits until everything that is committed is in the archive. */
export async function archived(dataDir: string, root: string): Promise<string> {
  const segment = await switchSegment(dataDir);
  await until(`${segment} is archived`, () => isArchived(root, segment));
  return segment;
}

export async function untilCopied(root: string, copies = 1): Promise<void> {
  await until('there is a complete base copy', () => {
    const complete = baseCopiesIn(root).filter(({ lastSegment }) => isArchived(root, lastSegment));
    return complete.length >= copies;
  });
}

export interface Moment {
  at: string;
  rows: Record<string, string[]>;
}

/** Tables whose changes a test decides, while no sandbox runs. */
const TABLES = ['orgs', 'volumes', 'sandboxes', 'sandbox_labels', 'events', 'webhooks'];

async function committedRows(client: pg.Client): Promise<Moment['rows']> {
  const rows: Moment['rows'] = {};
  for (const table of TABLES) {
    const found = await client.query<{ row: string }>(`select t::text as row from ${table} t order by 1`);
    rows[table] = found.rows.map(({ row }) => row);
  }
  return rows;
}

/** The committed rows, and a time at which nothing changed them. */
export async function momentOf(dataDir: string): Promise<Moment> {
  return inDatabase(dataDir, async (client) => {
    await until('the reconciler has settled what was deleted', async () => {
      const { rows } = await client.query<{ left: string }>(
        'select count(*) as left from sandboxes where removed_at is not null and destroyed_at is null',
      );
      return rows[0]!.left === '0';
    });
    for (;;) {
      const rows = await committedRows(client);
      const time = await client.query<{ at: string }>(
        `select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at`,
      );
      // The time of a commit is set before others see the commit. A commit that is under way may lie before this
      // moment.
      const committing = await client.query(
        'select 1 from pg_stat_activity where backend_xid is not null and pid <> pg_backend_pid()',
      );
      if (committing.rowCount === 0 && isDeepStrictEqual(rows, await committedRows(client)))
        return { at: time.rows[0]!.at, rows };
    }
  });
}
