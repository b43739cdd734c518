-- Previews: the grants that open a port of a sandbox to a browser or a program, and their settings.
-- The release before survives it: it serves no previews.

-- A row stays for some days after the end of the preview, so that its holder is told of the end.
create table previews (
  org_id uuid not null references orgs,
  id uuid not null unique,
  sandbox_id uuid not null,
  port integer not null check (port between 1 and 65535),
  path text not null,
  label text,
  host_form text not null check (host_form in ('outer', 'sandbox')),
  is_public boolean not null,
  -- SHA-256 of the token, and of the cookie that a browser gets for it. Null: everybody may use the preview.
  grant_hash bytea unique check (octet_length(grant_hash) = 32),
  cookie_hash bytea unique check (octet_length(cookie_hash) = 32),
  created_by json not null,
  -- The preview ends with the key.
  key_id uuid not null,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  revoked_at timestamptz,
  last_used_at timestamptz,
  primary key (org_id, id),
  foreign key (org_id, sandbox_id) references sandboxes,
  foreign key (org_id, key_id) references api_keys,
  check (is_public = (grant_hash is null) and is_public = (cookie_hash is null))
);
create index previews_of_sandbox on previews (org_id, sandbox_id, created_at, id);
create index previews_of_key on previews (org_id, key_id);
create index previews_public on previews (sandbox_id, port) where is_public;
create index previews_end on previews (least(expires_at, revoked_at));
alter table previews enable row level security;
create policy own_organization on previews
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

-- Whether previews may be public, and whether browsers first see whose page they open.
alter table orgs add column public_previews boolean not null default false,
  add column preview_notice boolean not null default false;

-- Every process that serves a preview ends it when it is revoked, whoever does it, also by hand.
create function announce_preview() returns trigger language plpgsql as $$
begin
  perform pg_notify('sandkeep_previews', coalesce(new.sandbox_id, old.sandbox_id)::text);
  return null;
end
$$;
create trigger previews_changed
  after delete or update of revoked_at, expires_at on previews
  for each row execute function announce_preview();

create function announce_preview_settings() returns trigger language plpgsql as $$
begin
  perform pg_notify('sandkeep_previews', '');
  return null;
end
$$;
create trigger preview_settings_changed
  after update of public_previews, preview_notice on orgs
  for each row execute function announce_preview_settings();
