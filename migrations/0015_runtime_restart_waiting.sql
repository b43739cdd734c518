-- An installation remembers the runtime that it was served with last, so that a missing engine is never replaced by another runtime.
-- A sandbox that is stopping keeps the run that is admitted to follow, so that a restart survives a crash between stop and start.
-- A run keeps a mark when its long wait for a place is noted, so that it is noted once.
-- The release before survives it: it knows none of the columns, and leaves a sandbox that it saw stop during a restart `stopped`.

alter table instance add column runtime text;

-- Installations of earlier releases: the runtime that has run sandboxes, Docker before the simulated one.
update instance set runtime = case
  when exists (select from sandboxes where runtime = 'docker') then 'docker'
  when exists (select from sandboxes where runtime = 'simulated') then 'simulated'
end;

-- The needs of the next run and its actor. Holds only while the sandbox is `stopping`.
alter table sandboxes add column next_run json;

-- A run that is admitted to follow keeps its place among those that run.
create function counts_as_running(runtime text, status text, next_run json) returns boolean language sql immutable parallel safe as $$
  select runtime is not null and (status in ('starting', 'running') or status = 'stopping' and next_run is not null)
$$;

create or replace function count_new_sandboxes() returns trigger language plpgsql as $$
begin
  insert into sandbox_counts (org_id, existing, ephemeral_running, persistent_running)
  select org_id, count(*), count(*) filter (where runs and ephemeral), count(*) filter (where runs and not ephemeral)
  from (
    select org_id, ephemeral, counts_as_running(runtime, status, next_run) as runs
    from new_sandboxes where removed_at is null) existing
  group by org_id;
  return null;
end
$$;

create or replace function count_changed_sandbox() returns trigger language plpgsql as $$
declare
  existed constant boolean := old.removed_at is null;
  ran constant boolean := existed and counts_as_running(old.runtime, old.status, old.next_run);
  exists_now constant boolean := tg_op = 'UPDATE' and new.removed_at is null;
  runs constant boolean := exists_now and counts_as_running(new.runtime, new.status, new.next_run);
begin
  insert into sandbox_counts (org_id, existing, ephemeral_running, persistent_running)
  values (old.org_id, exists_now::int - existed::int,
    case when old.ephemeral then runs::int - ran::int else 0 end,
    case when old.ephemeral then 0 else runs::int - ran::int end);
  return null;
end
$$;

create or replace trigger count_changed_sandbox after update on sandboxes for each row
  when ((old.removed_at is null) <> (new.removed_at is null)
    or (old.removed_at is null and counts_as_running(old.runtime, old.status, old.next_run))
      <> (new.removed_at is null and counts_as_running(new.runtime, new.status, new.next_run)))
  execute function count_changed_sandbox();

-- An audit event says that the run has waited long for a place.
alter table runs add column wait_noted boolean not null default false;
