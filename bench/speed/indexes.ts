import type { Client } from 'pg';

/**
 * Fills a table without its indexes, but for those that keep what is unique, and makes them again when it is full: an index in which
 * rows belong anywhere is far cheaper made at once than row by row.
 */
export async function withoutIndexes(
  client: Client,
  table: string,
  work: () => Promise<void>,
): Promise<void> {
  const { rows: indexes } = await client.query<{ name: string; made: string }>(
    // "only" is how one of a table with partitions is shown: that on the partitions is made by itself.
    `select indexrelid::regclass::text as name, replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON ') as made
     from pg_index where indrelid = $1::regclass and not indisunique`,
    [table],
  );
  for (const { name } of indexes) await client.query(`drop index ${name}`);
  await work();
  await client.query("set maintenance_work_mem = '256MB'");
  for (const { made } of indexes) await client.query(made);
  await client.query('reset maintenance_work_mem');
}
