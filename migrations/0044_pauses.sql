-- Paused sandboxes: the memory of an ended run is on the disk of its engine, and a later run continues it.
-- The release before survives it: it stops what is being paused, starts paused sandboxes anew from their disks, and ends their pauses so.

-- The storage that a paused sandbox keeps, from the end of its run. Usage reports read it.
create table pauses (
  org_id uuid not null,
  -- The run that was paused.
  run_id uuid not null,
  sandbox_id uuid not null,
  -- The size of the disk of the run.
  disk_mib integer not null check (disk_mib >= 0),
  -- The size of the saved memory on the disk.
  memory_mib integer not null check (memory_mib >= 0),
  from_at timestamptz not null,
  -- Null: the memory is on the disk.
  to_at timestamptz,
  primary key (org_id, run_id),
  foreign key (org_id, sandbox_id) references sandboxes,
  check (to_at >= from_at)
);
create unique index pauses_open on pauses (org_id, sandbox_id) where to_at is null;
create index pauses_ended on pauses (org_id, to_at) where to_at is not null;
alter table pauses enable row level security;
create policy own_organization on pauses
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

-- The start of the open pause. Null: there is none.
alter table sandboxes add column paused_at timestamptz,
  drop constraint sandboxes_stop_reason_check,
  add constraint sandboxes_stop_reason_check check (stop_reason in ('requested', 'idle', 'max_duration', 'quota', 'command', 'oom',
    'disk_full', 'engine', 'lost', 'start_failed', 'secret_violation', 'paused'));
create index sandboxes_paused on sandboxes (worker_id) where paused_at is not null and destroyed_at is null;

-- It continues the memory of the pause that was open at its request.
alter table runs add column resumes boolean not null default false;

-- A pause ends with the start of a later run, with its sandbox, or when a writer clears `paused_at`.
create function end_pause() returns trigger language plpgsql as $$
declare
  disk integer;
begin
  if new.paused_at is not distinct from old.paused_at then
    new.paused_at := null;
  end if;
  update pauses p set to_at = greatest(p.from_at, case
      when new.started_at is distinct from old.started_at then new.started_at
      when new.removed_at is distinct from old.removed_at then new.removed_at
      else new.changed_at end)
    where p.org_id = old.org_id and p.sandbox_id = old.id and p.to_at is null
    returning p.disk_mib into disk;
  new.disk_mib := least(new.disk_mib, coalesce(disk, new.disk_mib));
  return new;
end
$$;
create trigger end_pause before update on sandboxes
  for each row when (old.paused_at is not null and (new.paused_at is distinct from old.paused_at
    or new.started_at is distinct from old.started_at or new.removed_at is distinct from old.removed_at))
  execute function end_pause();
