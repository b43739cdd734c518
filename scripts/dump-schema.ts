import type { ClientBase } from 'pg';

/**
 * The schema as SQL text, read from the catalogue: the embedded distribution has no pg_dump. It is for people and for
 * comparison; the migrations are what makes a database.
 */
export async function dumpSchema(client: ClientBase): Promise<string> {
  // Partitions are named after the months in which the database was made, and are as their table is.
  const tables = await client.query<{ oid: number; name: string; partitioned: string | null }>(
    `select oid, relname as name, pg_get_partkeydef(oid) as partitioned from pg_class
     where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition
     order by relname`,
  );
  const parts = ['-- Made by "npm run generate" from a freshly migrated database. Do not edit.'];
  for (const table of tables.rows) parts.push(await dumpTable(client, table));
  const functions = await client.query<{ text: string }>(
    `select pg_get_functiondef(oid) || ';' as text from pg_proc
     where pronamespace = 'public'::regnamespace order by proname`,
  );
  parts.push(...functions.rows.map(({ text }) => text.replaceAll('\n;', ';')));
  return `${parts.join('\n\n')}\n`;
}

async function dumpTable(
  client: ClientBase,
  { oid, name, partitioned }: { oid: number; name: string; partitioned: string | null },
): Promise<string> {
  const columns = await client.query<{ line: string }>(
    `select format('%I %s%s%s%s', a.attname, format_type(a.atttypid, a.atttypmod),
       case when a.attcollation <> t.typcollation then format(' collate %I', c.collname) else '' end,
       case when a.attnotnull then ' not null' else '' end,
       coalesce(
         case a.attgenerated
           when 's' then format(' generated always as (%s) stored', pg_get_expr(d.adbin, d.adrelid))
           else ' default ' || pg_get_expr(d.adbin, d.adrelid)
         end, '')) as line
     from pg_attribute a
     join pg_type t on t.oid = a.atttypid
     left join pg_collation c on c.oid = a.attcollation
     left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
     where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
     order by a.attnum`,
    [oid],
  );
  const constraints = await client.query<{ line: string }>(
    // 'n' is "not null", which stands with its column.
    `select format('constraint %I %s', conname, pg_get_constraintdef(oid)) as line
     from pg_constraint where conrelid = $1 and contype <> 'n'
     order by contype = 'p' desc, conname`,
    [oid],
  );
  const indexes = await client.query<{ line: string }>(
    `select pg_get_indexdef(i.indexrelid) || ';' as line
     from pg_index i join pg_class c on c.oid = i.indexrelid
     where i.indrelid = $1 and not exists (select from pg_constraint k where k.conindid = i.indexrelid)
     order by c.relname`,
    [oid],
  );
  const triggers = await client.query<{ line: string }>(
    `select pg_get_triggerdef(oid) || ';' as line from pg_trigger
     where tgrelid = $1 and not tgisinternal order by tgname`,
    [oid],
  );
  const policies = await client.query<{ line: string }>(
    `select format('create policy %I on %I using %s;', polname, relname, pg_get_expr(polqual, polrelid)) as line
     from pg_policy join pg_class on pg_class.oid = polrelid and relrowsecurity
     where polrelid = $1 order by polname`,
    [oid],
  );
  const body = [...columns.rows, ...constraints.rows].map(({ line }) => `  ${line}`).join(',\n');
  return [
    `create table ${name} (\n${body}\n)${partitioned === null ? '' : ` partition by ${partitioned}`};`,
    ...[...indexes.rows, ...triggers.rows, ...policies.rows].map(({ line }) => line),
  ].join('\n');
}
