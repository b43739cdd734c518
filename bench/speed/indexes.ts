import type { Client } from 'pg';

/**
 * Fills a table without its indexes, except unique ones, and creates them again afterwards. Random insertions into an
 * index cost far more than building it at once.
 */
export async function withoutIndexes(
  client: Client,
  table: string,
  work: () => Promise<void>,
): Promise<void> {
  const { rows: indexes } = await client.query<{ name: string; made: string }>(
    // The index of a partitioned table is shown with "only". Creating it without "only" creates those of the
    // partitions, too.
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
