-- Finds open previews without a look at those that have ended, and says whose settings have changed.
-- The release before survives it: it looks each preview up again within a second.

-- A caller may open and revoke previews of one port all week, and each request of a stranger looks for the last of them.
drop index previews_public;
create index previews_public on previews (sandbox_id, port, expires_at) where is_public and revoked_at is null;
create index previews_open on previews (org_id, sandbox_id, expires_at) where revoked_at is null;

-- One organization that changes its settings costs the previews of the others nothing.
create or replace function announce_preview_settings() returns trigger language plpgsql as $$
begin
  perform pg_notify('sandkeep_previews', new.id::text);
  return null;
end
$$;
