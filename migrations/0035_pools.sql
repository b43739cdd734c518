-- Pools: started sandboxes without a caller yet, which creates take.
-- The release before survives it: it keeps no pools. It shows the sandboxes of a pool as any others, and can delete them.

-- A deleted pool stays, because the sandboxes that it gave away name it.
create table pools (
  org_id uuid not null references orgs,
  id uuid not null unique,
  name text collate "C" not null,
  -- The specification as it was asked for. `run_spec`: with the defaults and limits of the organization, as its members have it.
  request json not null,
  run_spec jsonb not null,
  spec json not null,
  runtime text not null,
  size integer not null check (size between 0 and 100),
  most integer check (most >= size),
  -- Members with another image are replaced. Null: no member has started.
  image_digest text,
  tag_checked_at timestamptz not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  -- The pool that waited the longest is the next.
  refilled_at timestamptz not null,
  next_refill_at timestamptz not null,
  failures integer not null default 0,
  last_failure_message text,
  removed_at timestamptz,
  primary key (org_id, id)
);
create unique index pools_name on pools (org_id, name) where removed_at is null;
create index pools_kept on pools (runtime, refilled_at) where removed_at is null;
alter table pools enable row level security;
create policy own_organization on pools
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

-- `pool_id`: the pool that started the sandbox. `warm`: no create has taken it. `source`: how a create got its run.
alter table sandboxes add column pool_id uuid, add column warm boolean not null default false, add column source json,
  add foreign key (org_id, pool_id) references pools;
create index sandboxes_of_pool on sandboxes (org_id, pool_id) where pool_id is not null and removed_at is null;

-- Whether a live process controls the worker. It tells no more of workers: the role of requests reads none of them.
create function is_worker_live(worker uuid, at timestamptz) returns boolean
language sql stable security definer set search_path = pg_catalog
as $$
  select exists (select from public.workers where id = worker and expires_at > at)
$$;

-- A create may take a persistent member for an ephemeral sandbox, which has a quota of its own.
create or replace function count_changed_sandbox() returns trigger language plpgsql as $$
declare
  existed constant boolean := old.removed_at is null;
  ran constant boolean := existed and counts_as_running(old.runtime, old.status, old.next_run);
  exists_now constant boolean := tg_op = 'UPDATE' and new.removed_at is null;
  runs constant boolean := exists_now and counts_as_running(new.runtime, new.status, new.next_run);
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
    or (old.removed_at is null and counts_as_running(old.runtime, old.status, old.next_run))
      <> (new.removed_at is null and counts_as_running(new.runtime, new.status, new.next_run))
    or old.ephemeral <> new.ephemeral)
  execute function count_changed_sandbox();
