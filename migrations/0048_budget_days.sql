-- Past days of budgets of labels and keys: a start then reads only the runs of its own day.
-- The release before survives it: it enforces no budget.

-- The use of a budget by the closed runs of one UTC day. It counts only while `version` is that of the totals of the day.
create table budget_days (
  org_id uuid not null,
  budget_id uuid not null,
  day date not null,
  version text not null,
  micros numeric not null,
  vcpu_micros numeric not null,
  memory_mib_micros numeric not null,
  disk_mib_micros numeric not null,
  primary key (org_id, budget_id, day),
  foreign key (org_id, budget_id) references budgets on delete cascade
);
alter table budget_days enable row level security;
create policy own_organization on budget_days
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);
