-- Row-level security: a session that serves requests sees and writes rows of one organization only, whatever its statements
-- leave out (src/db/requests.ts). Whoever owns the tables is not bound by it: commands, background work, authentication.
-- The release before survives it: it knows no sessions but the owner's.

do $$
declare
  table_name text;
  -- Without an organization it is null, which equals nothing.
  own constant text := 'nullif(current_setting(''sandkeep.org_id'', true), '''')::uuid';
begin
  for table_name in
    select relname from pg_class
    where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition
      and exists (select from pg_attribute where attrelid = pg_class.oid and attname = 'org_id')
  loop
    execute format('alter table %I enable row level security', table_name);
    execute format('create policy own_organization on %I using (org_id = %s)', table_name, own);
  end loop;
  alter table orgs enable row level security;
  execute format('create policy own_organization on orgs using (id = %s)', own);
end
$$;

-- Ends the statement that is under way in another session of ours, for a reader that has left: the role of requests has no right
-- to that itself.
create function cancel_statement(pid int) returns boolean
language sql security definer set search_path = pg_catalog
as $$ select pg_cancel_backend(pid) $$;
revoke execute on function cancel_statement from public;
