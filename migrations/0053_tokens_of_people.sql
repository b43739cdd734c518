-- A personal token opens every organization of its person by the path /v1/orgs/{slug}. In each other organization it is
-- a row of its own, made at the first use there, so that this organization lists and revokes it like its own tokens.
-- The release before survives it: nobody has the secret of such a row, and it lists and revokes the row like any other.

alter table api_keys
  -- The token that stands behind this one. Null: it has a secret of its own. There is no reference: the rows of keys stay.
  add column of_org_id uuid,
  add column of_token_id uuid,
  add constraint api_keys_of_token check (
    (of_org_id is null) = (of_token_id is null)
    and (of_token_id is null or member_id is not null));
create unique index api_keys_of_token on api_keys (of_token_id, member_id) where of_token_id is not null;
-- The ends that an event still has to tell (src/keys/jobs.ts). For these rows `expiry_recorded` covers both ends.
create index api_keys_ended_elsewhere on api_keys (revoked_at)
  where of_token_id is not null and revoked_at is not null and not expiry_recorded;

-- The transaction that revokes a token sees only its own organization. The owner of the function sees the others.
create function end_tokens_elsewhere() returns trigger
language plpgsql security definer set search_path = pg_catalog
as $$
begin
  update public.api_keys set revoked_at = new.revoked_at
  where of_token_id = new.id and revoked_at is null;
  return null;
end
$$;
create trigger api_keys_revoked
  after update of revoked_at on api_keys
  for each row when (new.revoked_at is not null and old.revoked_at is null and new.of_token_id is null
    and new.member_id is not null)
  execute function end_tokens_elsewhere();
