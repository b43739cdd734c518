-- People sign in to the console: members with more roles, limited to labels, their sessions, links for one sign-in,
-- accounts of an OpenID provider, invitations.
-- The release before survives it: it finds only sessions of keys, and no member has a new role before a command of this
-- release gives it one.

alter table org_members
  drop constraint org_members_role_check,
  -- src/access/roles.ts
  add constraint org_members_role_check
    check (role in ('owner', 'admin', 'developer', 'member', 'viewer', 'finance', 'auditor')),
  -- The member sees only sandboxes with all of these. Empty: every sandbox.
  add column labels jsonb not null default '{}' check (jsonb_typeof(labels) = 'object'),
  add constraint org_members_narrowed check (labels = '{}' or role in ('developer', 'member', 'viewer'));

-- A session belongs to a key or to a member, and ends with it.
alter table console_sessions
  alter column key_id drop not null,
  alter column secret_prefix drop not null,
  add column member_id uuid,
  -- The end of a member's session, unless it is used before.
  add column idle_at timestamptz,
  add constraint console_sessions_holder check (
    (key_id is null) <> (member_id is null)
    and (key_id is null) = (secret_prefix is null)
    and (member_id is null) = (idle_at is null)),
  add constraint console_sessions_org_id_member_id_fkey foreign key (org_id, member_id)
    references org_members on delete cascade;
create index console_sessions_of_member on console_sessions (org_id, member_id, created_at);

-- A link that opens one session of a member. The row exists until its use, its end, or the next link of the member.
create table member_links (
  org_id uuid not null,
  member_id uuid not null,
  -- SHA-256 of the token in the link.
  hash bytea not null unique check (octet_length(hash) = 32),
  created_at timestamptz not null,
  expires_at timestamptz not null,
  primary key (org_id, member_id),
  foreign key (org_id, member_id) references org_members on delete cascade
);
create index member_links_expiry on member_links (expires_at);
alter table member_links enable row level security;
create policy own_organization on member_links
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

-- A member's session makes tickets without a key.
alter table terminal_tickets
  alter column key_id drop not null,
  alter column secret_prefix drop not null,
  add constraint terminal_tickets_holder check (
    (key_id is null) = (secret_prefix is null) and (key_id is not null or session_hash is not null));

-- An account of the provider. It belongs to no organization.
create table people (
  id uuid primary key,
  issuer text collate "C" not null,
  subject text collate "C" not null,
  -- The organization of the latest session. Null: none yet.
  last_org_id uuid,
  created_at timestamptz not null,
  signed_in_at timestamptz not null,
  unique (issuer, subject)
);

alter table org_members
  -- The account that signed in with the verified address of the member. Null: none has.
  add column person_id uuid references people,
  -- Groups of the provider give the membership, and take it.
  add column by_groups boolean not null default false,
  add constraint org_members_person unique (org_id, person_id);
create index org_members_of_person on org_members (person_id) where person_id is not null;

-- Every process that caches sessions forgets them when the rights of a member change, or its account. A member without
-- its account has no sessions of that account.
create trigger org_members_changed
  after update of role, labels, email, display_name, person_id on org_members
  for each row execute function announce_console_sessions();

alter table console_sessions
  -- The account of a sign-in by the provider. Null: a key or a link opened the session.
  add column person_id uuid references people,
  -- The session of the provider, which ends this one.
  add column sid text collate "C",
  -- The ID token, for the sign-out at the provider.
  add column sealed_by text,
  add column sealed bytea,
  add constraint console_sessions_person check (person_id is null or member_id is not null);
create index console_sessions_of_person on console_sessions (person_id) where person_id is not null;

-- The logout tokens of the provider that were used.
create table logout_tokens (
  hash bytea primary key check (octet_length(hash) = 32),
  expires_at timestamptz not null
);
create index logout_tokens_expiry on logout_tokens (expires_at);

-- Invitations to organizations. A row exists until somebody accepts the invitation, or an administrator revokes it, or some time after its end.
create table member_invitations (
  org_id uuid not null references orgs,
  id uuid not null,
  email text collate "C" not null,
  -- src/access/roles.ts
  role text not null check (role in ('owner', 'admin', 'developer', 'member', 'viewer', 'finance', 'auditor')),
  labels jsonb not null check (jsonb_typeof(labels) = 'object'),
  -- SHA-256 of the token in the link.
  hash bytea not null unique check (octet_length(hash) = 32),
  created_at timestamptz not null,
  created_by json not null,
  expires_at timestamptz not null,
  primary key (org_id, id),
  constraint member_invitations_narrowed check (labels = '{}' or role in ('developer', 'member', 'viewer'))
);
-- A further invitation of an address replaces the first.
create unique index member_invitations_email on member_invitations (org_id, lower(email));
create index member_invitations_created on member_invitations (org_id, created_at, id);
create index member_invitations_expiry on member_invitations (expires_at);
alter table member_invitations enable row level security;
create policy own_organization on member_invitations
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);
