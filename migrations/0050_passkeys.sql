-- Members sign in with passkeys.
-- The release before survives it: it reads and writes none of this, and its sessions have no passkey.

-- A credential of WebAuthn that signs a member in.
create table member_passkeys (
  org_id uuid not null,
  id uuid not null,
  member_id uuid not null,
  credential_id bytea not null unique check (octet_length(credential_id) between 1 and 1023),
  -- A COSE key.
  public_key bytea not null check (octet_length(public_key) between 1 and 2048),
  -- The signature counter of the authenticator. 0: it has none.
  counter bigint not null check (counter >= 0),
  transports text[] not null,
  name text not null,
  created_at timestamptz not null,
  -- The latest sign-in. Null: none yet.
  used_at timestamptz,
  primary key (org_id, id),
  foreign key (org_id, member_id) references org_members on delete cascade
);
create index member_passkeys_of_member on member_passkeys (org_id, member_id, created_at, id);
alter table member_passkeys enable row level security;
create policy own_organization on member_passkeys
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

-- A session that a passkey opened ends with it.
alter table console_sessions
  add column passkey_id uuid,
  add constraint console_sessions_passkey check (passkey_id is null or member_id is not null),
  add constraint console_sessions_org_id_passkey_id_fkey foreign key (org_id, passkey_id)
    references member_passkeys on delete cascade;
create index console_sessions_of_passkey on console_sessions (org_id, passkey_id) where passkey_id is not null;

-- The challenges that authenticators have yet to sign. A row exists until its use or some time after its end.
create table passkey_challenges (
  -- SHA-256 of a token in a cookie of the browser: that of the session for a new passkey.
  hash bytea primary key check (octet_length(hash) = 32),
  purpose text not null check (purpose in ('register', 'sign_in')),
  -- The session for a new passkey, else a hash of the network of the client: each has few challenges.
  source bytea not null check (octet_length(source) = 32),
  challenge bytea not null check (octet_length(challenge) = 32),
  created_at timestamptz not null,
  expires_at timestamptz not null
);
create index passkey_challenges_of_source on passkey_challenges (source, created_at);
create index passkey_challenges_created on passkey_challenges (created_at);
create index passkey_challenges_expiry on passkey_challenges (expires_at);
