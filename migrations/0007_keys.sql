-- Keys that open only what they should: scopes, labels, networks, an end, rotation.
-- The release before survives it, but knows none of this: it takes every key that is not revoked for one that may do
-- everything. Let none of it run any more when the first key of less is made.

alter table api_keys
  -- See src/keys/scopes.ts. What keys could do until now is everything.
  add column scopes text[] not null default '{org:admin}' check (cardinality(scopes) > 0),
  -- The sandboxes it opens have all of these. Such a key has no other scopes than those of sandboxes: nothing else can be
  -- told apart by labels.
  add column labels jsonb not null default '{}' check (jsonb_typeof(labels) = 'object'),
  -- The networks it is taken from; all when empty.
  add column cidrs text[] not null default '{}',
  add column expires_at timestamptz,
  -- Who made it, as it was then. Null for keys that were made before this.
  add column created_by json,
  -- At most a minute behind.
  add column last_used_at timestamptz,
  -- When the secret was last replaced.
  add column rotated_at timestamptz,
  -- That it expired is in the audit trail.
  add column expiry_recorded boolean not null default false,
  -- When it was last written that the key is refused often.
  add column refusals_recorded_at timestamptz,
  add constraint api_keys_narrowed check (
    labels = '{}' or scopes <@ '{sandboxes:read,sandboxes:write}'::text[]);
create index api_keys_created on api_keys (org_id, created_at, id);
create index api_keys_expiring on api_keys (expires_at) where not expiry_recorded and revoked_at is null;

-- Secrets that were replaced and still work for a while.
create table api_key_replaced_secrets (
  org_id uuid not null,
  key_id uuid not null,
  prefix text not null,
  hash bytea not null check (octet_length(hash) = 32),
  until timestamptz not null,
  primary key (org_id, key_id, hash),
  foreign key (org_id, key_id) references api_keys
);
create index api_key_replaced_secrets_prefix on api_key_replaced_secrets (prefix);
create index api_key_replaced_secrets_until on api_key_replaced_secrets (until);

-- Every process that remembers a key forgets it when the change is committed, whoever made it, also by hand.
create function announce_key() returns trigger language plpgsql as $$
begin
  perform pg_notify('sandkeep_keys', coalesce(new.id, old.id)::text);
  return null;
end
$$;
create trigger api_keys_changed
  after delete or update of prefix, hash, revoked_at, scopes, labels, cidrs, expires_at, name on api_keys
  for each row execute function announce_key();
