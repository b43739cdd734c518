-- Usage of closed runs by UTC day, since when a sandbox has had its labels, and how much is in a volume.
-- The release before survives it: triggers keep both right, whoever writes (docs/decisions/0013-closed-runs-are-counted-once.md).

-- All that is changed below, at once and before anything is computed: a transaction that holds one of them and waits for another
-- then meets a migration that has done nothing yet, and is tried again.
lock table volumes in access exclusive mode;
lock table sandboxes, runs in share row exclusive mode;

-- The UTC days that [from_at, to_at) touches, and how many microseconds of it are on each. Days on which none are, are left out.
create function days_of(from_at timestamptz, to_at timestamptz) returns table (day date, micros bigint)
language sql immutable parallel safe as $$
  select date '1970-01-01' + n,
    least((extract(epoch from to_at) * 1000000)::bigint, (n + 1) * 86400000000)
      - greatest((extract(epoch from from_at) * 1000000)::bigint, n * 86400000000)
  from generate_series(
    ((from_at at time zone 'UTC')::date - date '1970-01-01'),
    (((to_at - interval '1 microsecond') at time zone 'UTC')::date - date '1970-01-01')) as n
  where from_at < to_at
$$;

-- A stored day as it is answered, rounded once. Whatever session writes it: a cast of a date or of a float8 to text depends on
-- settings.
create function usage_json(day date, sandbox_id uuid, vcpu_micros numeric, memory_mib_micros numeric, disk_mib_micros numeric)
returns text language sql immutable strict parallel safe
set datestyle = 'ISO' set extra_float_digits = 1 as $$
  select '{"day":"' || day || 'T00:00:00Z","sandbox_id":"' || sandbox_id
    || '","vcpu_seconds":' || (vcpu_micros * 0.000001)::float8
    || ',"mem_mib_seconds":' || (memory_mib_micros * 0.000001)::float8
    || ',"disk_mib_seconds":' || (disk_mib_micros * 0.000001)::float8 || '}'
$$;

-- What the closed runs of a sandbox used on one UTC day, exact in integers. Open runs are not in it: only a closed run never
-- changes, so these sums never depend on what time it is.
create table usage_days (
  org_id uuid not null,
  day date not null,
  -- Of the sandbox, as it is now: so the index has the rows in the order in which they are answered.
  name text collate "C" not null,
  sandbox_id uuid not null,
  micros numeric not null check (micros >= 0),
  vcpu_micros numeric not null,
  memory_mib_micros numeric not null,
  disk_mib_micros numeric not null,
  -- Put into words when it is written: that takes six times as long as reading it.
  json text not null generated always as
    (usage_json(day, sandbox_id, vcpu_micros, memory_mib_micros, disk_mib_micros)) stored,
  primary key (org_id, day, name, sandbox_id)
);
create unique index usage_days_sandbox on usage_days (org_id, sandbox_id, day);

create function count_new_runs() returns trigger language plpgsql as $$
begin
  -- Most runs are inserted before they start.
  if not exists (select from new_runs where stopped_at is not null) then
    return null;
  end if;
  -- Nobody renames them meanwhile, and nobody else counts for them: two that touch days of one in turn would wait for each other.
  perform from sandboxes s
  where exists (
    select from new_runs r where r.org_id = s.org_id and r.sandbox_id = s.id and r.stopped_at is not null)
  order by s.org_id, s.id
  for no key update;
  insert into usage_days as u
    (org_id, day, name, sandbox_id, micros, vcpu_micros, memory_mib_micros, disk_mib_micros)
  select r.org_id, d.day, s.name, r.sandbox_id, sum(d.micros), sum(d.micros::numeric * r.vcpus),
    sum(d.micros::numeric * r.memory_mib), sum(d.micros::numeric * r.disk_mib)
  from new_runs r
  join sandboxes s on s.org_id = r.org_id and s.id = r.sandbox_id
  cross join lateral days_of(r.started_at, r.stopped_at) d
  where r.stopped_at is not null
  group by r.org_id, d.day, s.name, r.sandbox_id
  order by r.org_id, d.day, s.name, r.sandbox_id
  on conflict (org_id, sandbox_id, day) do update
    set micros = u.micros + excluded.micros,
      vcpu_micros = u.vcpu_micros + excluded.vcpu_micros,
      memory_mib_micros = u.memory_mib_micros + excluded.memory_mib_micros,
      disk_mib_micros = u.disk_mib_micros + excluded.disk_mib_micros;
  return null;
end
$$;
create trigger count_new_runs after insert on runs
  referencing new table as new_runs for each statement execute function count_new_runs();

create function count_changed_run() returns trigger language plpgsql as $$
begin
  perform from sandboxes where org_id = old.org_id and id = old.sandbox_id for no key update;
  if old.stopped_at is not null then
    update usage_days u
    set micros = u.micros - d.micros,
      vcpu_micros = u.vcpu_micros - d.micros::numeric * old.vcpus,
      memory_mib_micros = u.memory_mib_micros - d.micros::numeric * old.memory_mib,
      disk_mib_micros = u.disk_mib_micros - d.micros::numeric * old.disk_mib
    from days_of(old.started_at, old.stopped_at) d
    where u.org_id = old.org_id and u.sandbox_id = old.sandbox_id and u.day = d.day;
    delete from usage_days u where u.org_id = old.org_id and u.sandbox_id = old.sandbox_id and u.micros = 0;
  end if;
  if tg_op = 'UPDATE' then
    insert into usage_days as u
      (org_id, day, name, sandbox_id, micros, vcpu_micros, memory_mib_micros, disk_mib_micros)
    select new.org_id, d.day, s.name, new.sandbox_id, d.micros, d.micros::numeric * new.vcpus,
      d.micros::numeric * new.memory_mib, d.micros::numeric * new.disk_mib
    from sandboxes s
    cross join lateral days_of(new.started_at, new.stopped_at) d
    where s.org_id = new.org_id and s.id = new.sandbox_id and new.stopped_at is not null
    on conflict (org_id, sandbox_id, day) do update
      set micros = u.micros + excluded.micros,
        vcpu_micros = u.vcpu_micros + excluded.vcpu_micros,
        memory_mib_micros = u.memory_mib_micros + excluded.memory_mib_micros,
        disk_mib_micros = u.disk_mib_micros + excluded.disk_mib_micros;
  end if;
  return null;
end
$$;
-- Not for the notes that a run is still seen, which come every second.
create trigger count_changed_run after update on runs for each row
  when ((old.org_id, old.sandbox_id, old.started_at, old.stopped_at, old.vcpus, old.memory_mib, old.disk_mib)
    is distinct from (new.org_id, new.sandbox_id, new.started_at, new.stopped_at, new.vcpus, new.memory_mib, new.disk_mib)
    and (old.stopped_at is not null or new.stopped_at is not null))
  execute function count_changed_run();
create trigger count_deleted_run after delete on runs for each row when (old.stopped_at is not null)
  execute function count_changed_run();

create function rename_usage() returns trigger language plpgsql as $$
begin
  update usage_days set name = new.name where org_id = new.org_id and sandbox_id = new.id;
  return null;
end
$$;
create trigger rename_usage after update of name on sandboxes for each row
  when (old.name is distinct from new.name) execute function rename_usage();

-- What has been counted so far.
insert into usage_days (org_id, day, name, sandbox_id, micros, vcpu_micros, memory_mib_micros, disk_mib_micros)
select r.org_id, d.day, s.name, r.sandbox_id, sum(d.micros), sum(d.micros::numeric * r.vcpus),
  sum(d.micros::numeric * r.memory_mib), sum(d.micros::numeric * r.disk_mib)
from runs r
join sandboxes s on s.org_id = r.org_id and s.id = r.sandbox_id
cross join lateral days_of(r.started_at, r.stopped_at) d
where r.stopped_at is not null
group by r.org_id, d.day, s.name, r.sandbox_id
order by r.org_id, d.day, s.name, r.sandbox_id;

-- From when to when a sandbox had a label. Usage asks what labels were while something ran, of removed sandboxes too; the
-- list asks what they are (sandbox_labels).
create table label_periods (
  org_id uuid not null,
  key text collate "C" not null,
  value text collate "C" not null,
  sandbox_id uuid not null,
  -- The labels that a sandbox is made with count from -infinity: history may have run before it was made.
  from_at timestamptz not null,
  to_at timestamptz not null,
  primary key (org_id, key, value, sandbox_id, from_at),
  check (from_at < to_at)
);
create index label_periods_sandbox on label_periods (org_id, sandbox_id);

create function open_label_periods() returns trigger language plpgsql as $$
begin
  insert into label_periods (org_id, key, value, sandbox_id, from_at, to_at)
  select s.org_id, l.key, l.value, s.id, '-infinity', 'infinity'
  from new_sandboxes s
  cross join lateral json_each_text(s.spec -> 'labels') l;
  return null;
end
$$;
create trigger open_label_periods after insert on sandboxes
  referencing new table as new_sandboxes for each statement execute function open_label_periods();

create function change_label_periods() returns trigger language plpgsql as $$
declare
  -- A clock that was set back does not reach into periods that are over.
  change_at constant timestamptz := greatest(new.changed_at,
    (select max(greatest(nullif(from_at, '-infinity'), nullif(to_at, 'infinity'))) from label_periods
     where org_id = new.org_id and sandbox_id = new.id));
begin
  delete from label_periods p
  where p.org_id = new.org_id and p.sandbox_id = new.id and p.to_at = 'infinity' and p.from_at = change_at
    and new.spec -> 'labels' ->> p.key is distinct from p.value;
  update label_periods p set to_at = change_at
  where p.org_id = new.org_id and p.sandbox_id = new.id and p.to_at = 'infinity'
    and new.spec -> 'labels' ->> p.key is distinct from p.value;
  insert into label_periods (org_id, key, value, sandbox_id, from_at, to_at)
  select new.org_id, l.key, l.value, new.id, change_at, 'infinity'
  from json_each_text(new.spec -> 'labels') l
  where not exists (
    select from label_periods p
    where p.org_id = new.org_id and p.key = l.key and p.value = l.value and p.sandbox_id = new.id
      and p.to_at = 'infinity');
  return null;
end
$$;
create trigger change_label_periods after update of spec on sandboxes for each row
  when ((old.spec -> 'labels')::text is distinct from (new.spec -> 'labels')::text)
  execute function change_label_periods();

insert into label_periods (org_id, key, value, sandbox_id, from_at, to_at)
select s.org_id, l.key, l.value, s.id, '-infinity', 'infinity'
from sandboxes s
cross join lateral json_each_text(s.spec -> 'labels') l;

-- The last reading of its size, and when it was taken. Null before the first.
alter table volumes add column used_bytes bigint check (used_bytes >= 0);
alter table volumes add column sampled_at timestamptz;
create index volumes_unsampled on volumes (coalesce(sampled_at, created_at)) where status = 'active' and removed_at is null;

-- By when they end: reports ask for those that end in the window or soon after it. Only imported ones are longer than 48 hours.
drop index accruals_time;
create index accruals_end on accruals (org_id, to_at, from_at);
create index accruals_long on accruals (org_id, to_at, from_at) where to_at - from_at > interval '48 hours';
