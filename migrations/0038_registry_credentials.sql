-- Credentials of registries that an organization stores, for images that match a pattern.
-- The release before survives it: it pulls without them.

create table registry_credentials (
  org_id uuid not null references orgs,
  id uuid not null,
  -- A registry, or a registry and the beginning of repositories: `ghcr.io`, `ghcr.io/acme`.
  pattern text collate "C" not null,
  description text,
  username text not null,
  -- The password. Null: the operator lost the keys and deleted the sealed secrets.
  key_id text,
  sealed bytea,
  created_at timestamptz not null,
  created_by json not null,
  updated_at timestamptz not null,
  primary key (org_id, id),
  check ((key_id is null) = (sealed is null))
);
create unique index registry_credentials_pattern on registry_credentials (org_id, pattern);
alter table registry_credentials enable row level security;
create policy own_organization on registry_credentials
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);
