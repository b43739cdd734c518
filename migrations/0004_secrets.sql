-- Secrets of sandboxes: registry credentials until the image is there, values for the network proxy of runtimes that have one.
-- The release before survives it.

create table sandbox_secrets (
  org_id uuid not null,
  sandbox_id uuid not null,
  -- `registry`, or `env:` and the name of a variable.
  name text collate "C" not null,
  -- The key it is sealed under; see src/secrets/keyring.ts.
  key_id text not null,
  -- AES-256-GCM: nonce, ciphertext and tag. Bound to organization, sandbox and name.
  sealed bytea not null,
  primary key (org_id, sandbox_id, name),
  foreign key (org_id, sandbox_id) references sandboxes
);
create index sandbox_secrets_key on sandbox_secrets (key_id);

-- The key that secrets are sealed under, so that a service that does not have it is found out when it starts.
alter table instance add column secret_key_id text;
