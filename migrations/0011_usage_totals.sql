-- What the closed runs of an organization used by UTC day, added up over its sandboxes: what a month costs is asked far more often
-- than what each sandbox used, and must not take longer where there are more of them.
-- The release before survives it: triggers keep it right, whoever writes (docs/decisions/0013-closed-runs-are-counted-once.md).

-- Nothing is counted between what is added up below and the functions that go on from there.
lock table runs in share row exclusive mode;

create table usage_totals (
  org_id uuid not null,
  day date not null,
  -- A day has several rows, and transactions that close runs at the same time add to different ones. A row by itself says nothing, and
  -- may be negative.
  part int not null,
  micros numeric not null,
  vcpu_micros numeric not null,
  memory_mib_micros numeric not null,
  disk_mib_micros numeric not null,
  primary key (org_id, day, part)
);
alter table usage_totals enable row level security;
create policy own_organization on usage_totals
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

-- The first part that no other transaction adds to, held until this one ends: then none waits for another, and no two wait for each
-- other in turn, whatever days they come to in whatever order. An import has a part of its own, which it says.
create function usage_part() returns int language plpgsql as $$
declare
  said text := current_setting('sandkeep.usage_part', true);
  -- Of advisory locks: "usag".
  locks constant int := 1970496871;
  parts constant int := 32;
begin
  if said <> '' then
    return said;
  end if;
  for part in 0 .. parts - 1 loop
    if pg_try_advisory_xact_lock(locks, part) then
      return part;
    end if;
  end loop;
  perform pg_advisory_xact_lock(locks, pg_backend_pid() % parts);
  return pg_backend_pid() % parts;
end
$$;

create or replace function count_new_runs() returns trigger language plpgsql as $$
declare
  own_part int;
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
  own_part := usage_part();
  insert into usage_totals as t (org_id, day, part, micros, vcpu_micros, memory_mib_micros, disk_mib_micros)
  select r.org_id, d.day, own_part, sum(d.micros), sum(d.micros::numeric * r.vcpus),
    sum(d.micros::numeric * r.memory_mib), sum(d.micros::numeric * r.disk_mib)
  from new_runs r
  cross join lateral days_of(r.started_at, r.stopped_at) d
  where r.stopped_at is not null
  group by r.org_id, d.day
  on conflict (org_id, day, part) do update
    set micros = t.micros + excluded.micros,
      vcpu_micros = t.vcpu_micros + excluded.vcpu_micros,
      memory_mib_micros = t.memory_mib_micros + excluded.memory_mib_micros,
      disk_mib_micros = t.disk_mib_micros + excluded.disk_mib_micros;
  return null;
end
$$;

create or replace function count_changed_run() returns trigger language plpgsql as $$
declare
  own_part int := usage_part();
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
  -- What it was is taken back and what it is added. A run that is open, or was, has no days here; nor has what a deleted one is.
  insert into usage_totals as t (org_id, day, part, micros, vcpu_micros, memory_mib_micros, disk_mib_micros)
  select r.org_id, d.day, own_part, sum(r.sign * d.micros), sum(r.sign * d.micros::numeric * r.vcpus),
    sum(r.sign * d.micros::numeric * r.memory_mib), sum(r.sign * d.micros::numeric * r.disk_mib)
  from (values
    (-1, old.org_id, old.started_at, old.stopped_at, old.vcpus, old.memory_mib, old.disk_mib),
    (1, new.org_id, new.started_at, new.stopped_at, new.vcpus, new.memory_mib, new.disk_mib)
  ) r (sign, org_id, started_at, stopped_at, vcpus, memory_mib, disk_mib)
  cross join lateral days_of(r.started_at, r.stopped_at) d
  group by r.org_id, d.day
  on conflict (org_id, day, part) do update
    set micros = t.micros + excluded.micros,
      vcpu_micros = t.vcpu_micros + excluded.vcpu_micros,
      memory_mib_micros = t.memory_mib_micros + excluded.memory_mib_micros,
      disk_mib_micros = t.disk_mib_micros + excluded.disk_mib_micros;
  return null;
end
$$;

-- What has been counted so far.
insert into usage_totals (org_id, day, part, micros, vcpu_micros, memory_mib_micros, disk_mib_micros)
select org_id, day, 0, sum(micros), sum(vcpu_micros), sum(memory_mib_micros), sum(disk_mib_micros)
from usage_days group by org_id, day order by org_id, day;
