-- How many sandboxes an organization has and how many of them run, without counting them: every change leaves a row here, and
-- nobody waits for anybody; the sum of the rows is the count. Now and then they are folded into one (src/quotas/queries.ts).
-- The release before survives it: it counts the sandboxes themselves, and what it writes is counted here by the triggers. Of two
-- releases at once neither waits for what the other is just adding to an organization that is close to a limit.

create table sandbox_counts (
  org_id uuid not null,
  id bigint generated always as identity,
  existing int not null,
  -- The starting and running ones. Imported ones do not run here.
  ephemeral_running int not null,
  persistent_running int not null,
  primary key (org_id, id)
) with (
  -- Few rows at any time, and very many that are gone: each is passed by who adds up, until it is cleared away.
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000
);
alter table sandbox_counts enable row level security;
create policy own_organization on sandbox_counts using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

create function count_new_sandboxes() returns trigger language plpgsql as $$
begin
  insert into sandbox_counts (org_id, existing, ephemeral_running, persistent_running)
  select org_id, count(*), count(*) filter (where runs and ephemeral), count(*) filter (where runs and not ephemeral)
  from (
    select org_id, ephemeral, runtime is not null and status in ('starting', 'running') as runs
    from new_sandboxes where removed_at is null) existing
  group by org_id;
  return null;
end
$$;
create trigger count_new_sandboxes after insert on sandboxes
  referencing new table as new_sandboxes for each statement execute function count_new_sandboxes();

create function count_changed_sandbox() returns trigger language plpgsql as $$
declare
  existed constant boolean := old.removed_at is null;
  ran constant boolean := existed and old.runtime is not null and old.status in ('starting', 'running');
  exists_now constant boolean := tg_op = 'UPDATE' and new.removed_at is null;
  runs constant boolean := exists_now and new.runtime is not null and new.status in ('starting', 'running');
begin
  insert into sandbox_counts (org_id, existing, ephemeral_running, persistent_running)
  values (old.org_id, exists_now::int - existed::int,
    case when old.ephemeral then runs::int - ran::int else 0 end,
    case when old.ephemeral then 0 else runs::int - ran::int end);
  return null;
end
$$;
create trigger count_changed_sandbox after update on sandboxes for each row
  when ((old.removed_at is null) <> (new.removed_at is null)
    or (old.removed_at is null and old.runtime is not null and old.status in ('starting', 'running'))
      <> (new.removed_at is null and new.runtime is not null and new.status in ('starting', 'running')))
  execute function count_changed_sandbox();
create trigger count_deleted_sandbox after delete on sandboxes for each row
  execute function count_changed_sandbox();

-- Whose sandbox it is and whether it is ephemeral never changes: the counts rely on it.
insert into sandbox_counts (org_id, existing, ephemeral_running, persistent_running)
select org_id, count(*), count(*) filter (where runs and ephemeral), count(*) filter (where runs and not ephemeral)
from (
  select org_id, ephemeral, runtime is not null and status in ('starting', 'running') as runs
  from sandboxes where removed_at is null) existing
group by org_id;
