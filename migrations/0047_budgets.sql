-- Budgets: a monthly amount or hours of an organization, a label or an API key.
-- The release before survives it: it enforces no budget, and its runs belong to no key.

create table budgets (
  org_id uuid not null references orgs,
  id uuid not null,
  name text collate "C" not null,
  scope text not null check (scope in ('organization', 'label', 'api_key')),
  label_key text collate "C",
  label_value text collate "C",
  -- No foreign key: a budget outlives its key.
  api_key_id uuid,
  measure text not null
    check (measure in ('cost', 'vcpu_hours', 'memory_gib_hours', 'disk_gib_hours', 'sandbox_hours')),
  amount numeric(18, 6) not null check (amount > 0),
  -- ISO 4217. Null: the budget counts hours.
  currency text,
  -- In per cent, ascending.
  thresholds integer[] not null,
  action text not null check (action in ('warn', 'refuse_starts', 'stop')),
  created_at timestamptz not null,
  created_by json not null,
  updated_at timestamptz not null,
  -- Thresholds that were reached until then are events.
  checked_until timestamptz not null,
  next_check_at timestamptz not null,
  -- At the last check: the use divided by the limit. Null: there was none, or it has no price.
  used_ratio double precision,
  primary key (org_id, id),
  check ((scope = 'label') = (label_key is not null)),
  check ((label_key is null) = (label_value is null)),
  check ((scope = 'api_key') = (api_key_id is not null)),
  check ((measure = 'cost') = (currency is not null))
);
create unique index budgets_name on budgets (org_id, name);
-- A start reads these alone.
create index budgets_enforced on budgets (org_id) where action <> 'warn';
create index budgets_due on budgets (next_check_at);
alter table budgets enable row level security;
create policy own_organization on budgets
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

-- The thresholds whose event is written. The unique key lets each have one event a month.
create table budget_notices (
  org_id uuid not null,
  budget_id uuid not null,
  month date not null,
  threshold integer not null,
  primary key (org_id, budget_id, month, threshold),
  foreign key (org_id, budget_id) references budgets on delete cascade
);
alter table budget_notices enable row level security;
create policy own_organization on budget_notices
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

-- The key whose request started the run. Null: the system, a run of an earlier release, or an imported one.
alter table runs add column started_by_key uuid,
  -- The usage belongs to the key from then on: a create took the sandbox from a pool. Null: from the start.
  add column key_since timestamptz;
create index runs_of_key on runs (org_id, started_by_key, stopped_at) where started_by_key is not null;

alter table sandboxes drop constraint sandboxes_stop_reason_check,
  add constraint sandboxes_stop_reason_check check (stop_reason in ('requested', 'idle', 'max_duration', 'quota',
    'command', 'oom', 'disk_full', 'engine', 'lost', 'start_failed', 'secret_violation', 'paused', 'budget'));
