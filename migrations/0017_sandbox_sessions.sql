-- Sessions in sandboxes: commands, terminals, files and connections that callers have open.
-- The release before survives it; it opens none.

-- A row exists as long as its session. The process that serves the session renews `seen_at`. Another process ends a session that nobody
-- renews, so each session has an end in the audit trail.
create table sandbox_sessions (
  org_id uuid not null references orgs,
  id uuid not null,
  sandbox_id uuid not null,
  actor json not null,
  -- The fields that its audit events share.
  details json not null,
  opened_at timestamptz not null,
  seen_at timestamptz not null,
  primary key (org_id, id)
);
create index sandbox_sessions_seen on sandbox_sessions (seen_at);
alter table sandbox_sessions enable row level security;
create policy own_organization on sandbox_sessions
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

alter table api_keys drop constraint api_keys_narrowed;
alter table api_keys add constraint api_keys_narrowed check (
  labels = '{}' or scopes <@ '{sandboxes:read,sandboxes:write,sandboxes:exec}'::text[]);
