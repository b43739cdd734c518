-- Audit events by month, only ever added to; a log of them without gaps in which each entry holds the hash of the one before,
-- and signed checkpoints of it (docs/decisions/0014-a-log-that-shows-what-was-changed.md).
-- The release before survives it, but for imports of events: what it writes goes into the log, too. Copies every event once.

alter table events rename to events_before;
alter table events_before drop constraint events_pkey;
drop index events_time, events_type, events_resource;

create table events (
  org_id uuid not null references orgs,
  id uuid not null,
  occurred_at timestamptz not null,
  category text collate "C" not null,
  event_type text collate "C" not null,
  actor json not null,
  payload json not null,
  -- Copies of what filters ask for.
  actor_kind text collate "C" not null,
  actor_id text collate "C" not null,
  resource_id uuid,
  -- SHA-256 of all that the event says, made by who wrote it. Null where that was done in SQL: then it is made when it is sealed.
  leaf bytea check (octet_length(leaf) = 32),
  -- Shows that who wrote it has the event keys. Null, or not right: it was put in by somebody else, and its entry says so.
  mark bytea check (octet_length(mark) = 16),
  primary key (org_id, occurred_at, id)
) partition by range (occurred_at);
create index events_type on events (org_id, event_type, occurred_at desc, id desc);
create index events_actor on events (org_id, actor_id, occurred_at desc, id desc);
create index events_resource on events (org_id, resource_id, occurred_at desc, id desc) where resource_id is not null;

-- Committed and not in the log yet. Whoever writes an event waits for nobody; who seals takes what is here.
create table unsealed_events (
  org_id uuid not null,
  -- In the order of writing: what came of another event lies behind it, whatever the clocks said.
  place bigint generated always as identity check (place > 0),
  occurred_at timestamptz not null,
  event_id uuid not null,
  queued_at timestamptz not null default clock_timestamp(),
  -- Copies for event_months.
  event_type text collate "C" not null,
  category text collate "C" not null,
  primary key (org_id, place)
);
create index unsealed_events_time on unsealed_events (org_id, occurred_at, event_id);

create function queue_events() returns trigger language plpgsql as $$
begin
  -- History comes in the order of its times.
  insert into unsealed_events (org_id, occurred_at, event_id, event_type, category)
  select org_id, occurred_at, id, event_type, category from new_events order by org_id, occurred_at, id;
  return null;
end
$$;
create trigger queue_events after insert on events
  referencing new table as new_events for each statement execute function queue_events();

-- The months in which an organization has events of a type, but for those that are not sealed: so that who looks for events opens
-- the partitions of these only. One that retention has emptied may be named.
create table event_months (
  org_id uuid not null,
  event_type text collate "C" not null,
  category text collate "C" not null,
  month timestamptz not null,
  primary key (org_id, event_type, month, category)
);
create index event_months_month on event_months (org_id, month);

-- What leaves the queue is in the log. Sealers of one organization follow one another, and so nobody waits for its month here.
create function note_event_months() returns trigger language plpgsql as $$
begin
  insert into event_months (org_id, event_type, category, month)
  select distinct org_id, event_type, category, date_trunc('month', occurred_at, 'UTC') from sealed
  on conflict do nothing;
  return null;
end
$$;
create trigger note_event_months after delete on unsealed_events
  referencing old table as sealed for each statement execute function note_event_months();

-- The order in which events are handed on. `seq` counts from 1 without gaps in each organization, and nothing is ever put before
-- what was seen. The entry of an event that retention dropped stays while there are older ones that are kept.
create table event_log (
  org_id uuid not null,
  seq bigint not null check (seq >= 1),
  event_id uuid not null,
  occurred_at timestamptz not null,
  leaf bytea not null check (octet_length(leaf) = 32),
  -- Its event did not bear the mark of who has the event keys.
  unmarked boolean not null,
  -- SHA-256 of the link before, seq, occurred_at, whether it is unmarked, and leaf.
  link bytea not null check (octet_length(link) = 32),
  primary key (org_id, seq)
);
create unique index event_log_event on event_log (org_id, event_id);

-- Where the log of an organization ends, signed anew with each batch. Its row is what sealers lock.
create table event_chains (
  org_id uuid primary key references orgs,
  seq bigint not null default 0 check (seq >= 0),
  -- Null before the first.
  link bytea check (octet_length(link) = 32),
  at timestamptz,
  -- The first entry of an event that bears a mark. What comes later without one was inserted. Signed with the end.
  marked_from bigint check (marked_from >= 1),
  key_id text,
  signature bytea,
  -- How many whole months events are kept. Null: for ever.
  retention_months int check (retention_months >= 1),
  -- By whoever said so last.
  retention_at timestamptz,
  retention_key_id text,
  retention_signature bytea,
  check ((seq = 0) = (link is null)),
  check ((link is null) = (signature is null) and (link is null) = (at is null) and (link is null) = (key_id is null))
);

-- Where it ended at moments before.
create table event_checkpoints (
  org_id uuid not null references orgs,
  seq bigint not null,
  link bytea not null check (octet_length(link) = 32),
  at timestamptz not null,
  marked_from bigint check (marked_from >= 1),
  key_id text not null,
  signature bytea not null,
  primary key (org_id, seq)
);

-- What retention dropped: of the entries up to `seq` the events before `dropped_before`, and all entries up to `base_seq`.
create table event_drops (
  org_id uuid not null references orgs,
  seq bigint not null,
  link bytea not null check (octet_length(link) = 32),
  at timestamptz not null,
  dropped_before timestamptz not null,
  base_seq bigint not null check (base_seq between 0 and seq),
  base_link bytea not null check (octet_length(base_link) = 32),
  key_id text not null,
  signature bytea not null,
  primary key (org_id, seq)
);

-- The public halves of the keys that signed. Who verifies takes them from elsewhere: here anybody could have put one.
create table event_keys (
  id text primary key,
  public_key bytea not null check (octet_length(public_key) = 32),
  added_at timestamptz not null
);

-- A superuser can get around this, and even who may only set a parameter: it is against mistakes. Against the rest there are the
-- links and the signatures.
create function refuse_event_change() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' and current_setting('sandkeep.event_retention', true) = 'on' then
    return old;
  end if;
  raise exception '% of % is refused: audit events are only ever added', lower(tg_op), tg_table_name
    using errcode = 'restrict_violation';
end
$$;
create trigger only_added before update or delete on events for each row execute function refuse_event_change();
create trigger only_added before update or delete on event_log for each row execute function refuse_event_change();
create trigger only_added before update or delete on event_checkpoints for each row execute function refuse_event_change();
create trigger only_added before update or delete on event_drops for each row execute function refuse_event_change();
create trigger only_added before update or delete on event_months for each row execute function refuse_event_change();
create trigger never_emptied before truncate on events execute function refuse_event_change();
create trigger never_emptied before truncate on event_log execute function refuse_event_change();
create trigger never_emptied before truncate on event_checkpoints execute function refuse_event_change();
create trigger never_emptied before truncate on event_drops execute function refuse_event_change();
create trigger never_emptied before truncate on event_months execute function refuse_event_change();

-- Takes what has no month of its own, so that writing an event never fails for want of one.
create table events_other partition of events default;
create trigger never_emptied before truncate on events_other execute function refuse_event_change();

-- Makes the partition of the UTC month of a moment, unless it is there, or there are events of that month in events_other: these
-- would have to move, and who began to read before does not look for them in the new partition, or does not see them there.
create function make_event_partition(of_month timestamptz) returns boolean language plpgsql as $$
declare
  from_at constant timestamptz := date_trunc('month', of_month at time zone 'UTC') at time zone 'UTC';
  to_at constant timestamptz := (date_trunc('month', of_month at time zone 'UTC') + interval '1 month') at time zone 'UTC';
  partition constant text := 'events_' || to_char(from_at at time zone 'UTC', 'YYYY_MM');
begin
  if to_regclass(partition) is not null then
    return false;
  end if;
  perform pg_advisory_xact_lock(hashtextextended('event partitions', 0));
  if to_regclass(partition) is not null
    or exists (select from events_other where occurred_at >= from_at and occurred_at < to_at) then
    return false;
  end if;
  if to_at > now() then
    -- Whoever writes an event of this month meanwhile waits here. Before events_other he would wait to be refused by it.
    lock table only events in share row exclusive mode;
  end if;
  execute format('create table %I (like events including all)', partition);
  execute format(
    'create trigger never_emptied before truncate on %I execute function refuse_event_change()', partition);
  -- Nobody reads or writes events_other until the transaction ends.
  execute format('alter table events attach partition %I for values from (%L) to (%L)', partition, from_at, to_at);
  return true;
exception
  -- Somebody wrote one to events_other meanwhile.
  when check_violation then
    return false;
end
$$;

-- This month and the next, and every month of which there are many events.
select make_event_partition(month)
from (
  select date_trunc('month', now()) + n * interval '1 month' as month from generate_series(0, 2) n
  union
  select date_trunc('month', occurred_at) from events_before group by 1 having count(*) >= 10000
) months
order by month;

insert into events (org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id, resource_id)
select org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id, resource_id
from events_before;
drop table events_before;

-- Of the price book that a service began with last. Null: none.
alter table instance add column price_book_sha256 text;
