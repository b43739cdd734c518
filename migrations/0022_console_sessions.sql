-- Sessions of the console, which stand for an API key in a cookie.
-- The release before survives it: it knows no sessions.

-- A row exists until the sign-out, or until the session has expired.
create table console_sessions (
  org_id uuid not null references orgs,
  -- SHA-256 of the token in the cookie.
  hash bytea not null unique check (octet_length(hash) = 32),
  id uuid not null unique,
  -- The key, and the secret of the sign-in: the session ends with either.
  key_id uuid not null,
  secret_prefix text not null,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  primary key (org_id, hash),
  foreign key (org_id, key_id) references api_keys
);
create index console_sessions_of_key on console_sessions (org_id, key_id, created_at);
create index console_sessions_expiry on console_sessions (expires_at);
alter table console_sessions enable row level security;
create policy own_organization on console_sessions
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

-- Every process that remembers sessions forgets them when one has ended.
create function announce_console_sessions() returns trigger language plpgsql as $$
begin
  perform pg_notify('sandkeep_console_sessions', '');
  return null;
end
$$;
create trigger console_sessions_deleted
  after delete on console_sessions
  for each statement execute function announce_console_sessions();

-- A terminal of the console ends with the session that made its ticket. Null: a key made the ticket.
alter table terminal_tickets add column session_hash bytea check (octet_length(session_hash) = 32);
