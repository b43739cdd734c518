-- The traces of requests for the work that follows them, and the last verification of each event log.
-- The release before survives it: it reads and writes none of these rows.

-- A row exists for each audit event of a sampled request, for some minutes. A trace that has lost its row only misses spans.
create table event_traces (
  org_id uuid not null,
  event_id uuid not null,
  resource_id uuid,
  -- The header of W3C Trace Context of the request.
  traceparent text not null check (traceparent ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-01$'),
  created_at timestamptz not null,
  primary key (org_id, event_id)
);
create index event_traces_of_resource on event_traces (org_id, resource_id, event_id);
create index event_traces_age on event_traces (created_at);
alter table event_traces enable row level security;
create policy own_organization on event_traces
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

-- Written by "sandkeep events verify". It tells the operator the time; it is no evidence.
create table event_log_verifications (
  org_id uuid primary key references orgs on delete cascade,
  verified_at timestamptz not null,
  entries bigint not null,
  -- Null: the log was in order.
  fault text
);
alter table event_log_verifications enable row level security;
create policy own_organization on event_log_verifications
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);
