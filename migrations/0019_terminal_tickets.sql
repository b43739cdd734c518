-- Tickets that open a terminal in a browser, which cannot send an API key; and full command lines in the audit trail.
-- The release before survives it: it makes no tickets, and records no arguments.

-- A row exists until the ticket is used or has expired.
create table terminal_tickets (
  org_id uuid not null references orgs,
  -- SHA-256 of the ticket.
  hash bytea not null unique check (octet_length(hash) = 32),
  sandbox_id uuid not null,
  -- The key that made the ticket, and its secret: the terminal ends with either.
  key_id uuid not null,
  secret_prefix text not null,
  -- The command of the terminal, sealed: its variables may hold secrets.
  sealed_by text not null,
  sealed bytea not null,
  expires_at timestamptz not null,
  primary key (org_id, hash)
);
create index terminal_tickets_expiry on terminal_tickets (expires_at);
alter table terminal_tickets enable row level security;
create policy own_organization on terminal_tickets
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

-- Whether the audit events of sessions have the whole command line.
alter table orgs add column command_lines boolean not null default false;
