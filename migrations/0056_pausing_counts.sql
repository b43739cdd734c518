-- A sandbox that is being paused runs until its memory is saved, and runs on if that fails. So it counts as running.
-- Read while the status is "stopping". The release before survives it: it pauses without the mark.

alter table sandboxes add column pausing boolean not null default false;

create function counts_as_running(runtime text, status text, next_run json, pausing boolean) returns boolean
language sql immutable parallel safe as $$
  select runtime is not null
    and (status in ('starting', 'running') or status = 'stopping' and (next_run is not null or pausing))
$$;

create or replace function count_new_sandboxes() returns trigger language plpgsql as $$
begin
  insert into sandbox_counts (org_id, existing, ephemeral_running, persistent_running)
  select org_id, count(*), count(*) filter (where runs and ephemeral), count(*) filter (where runs and not ephemeral)
  from (
    select org_id, ephemeral, counts_as_running(runtime, status, next_run, pausing) as runs
    from new_sandboxes where removed_at is null) existing
  group by org_id;
  return null;
end
$$;

create or replace function count_changed_sandbox() returns trigger language plpgsql as $$
declare
  existed constant boolean := old.removed_at is null;
  ran constant boolean := existed and counts_as_running(old.runtime, old.status, old.next_run, old.pausing);
  exists_now constant boolean := tg_op = 'UPDATE' and new.removed_at is null;
  runs constant boolean := exists_now and counts_as_running(new.runtime, new.status, new.next_run, new.pausing);
  is_ephemeral boolean := old.ephemeral;
begin
  if tg_op = 'UPDATE' then
    is_ephemeral := new.ephemeral;
  end if;
  insert into sandbox_counts (org_id, existing, ephemeral_running, persistent_running)
  values (old.org_id, exists_now::int - existed::int,
    (runs and is_ephemeral)::int - (ran and old.ephemeral)::int,
    (runs and not is_ephemeral)::int - (ran and not old.ephemeral)::int);
  return null;
end
$$;
drop trigger count_changed_sandbox on sandboxes;
create trigger count_changed_sandbox after update on sandboxes for each row
  when ((old.removed_at is null) <> (new.removed_at is null)
    or (old.removed_at is null and counts_as_running(old.runtime, old.status, old.next_run, old.pausing))
      <> (new.removed_at is null and counts_as_running(new.runtime, new.status, new.next_run, new.pausing))
    or old.ephemeral <> new.ephemeral)
  execute function count_changed_sandbox();
drop function counts_as_running(text, text, json);
