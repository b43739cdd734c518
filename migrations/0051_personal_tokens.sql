-- Personal tokens: API keys that belong to a member and open no more than the member may.
-- The release before survives it: it refuses the secrets of tokens by their form, and finds no other kind of key.

alter table api_keys
  -- The member whose personal token it is. Null: a key of the organization. There is no reference, because the row of a
  -- token stays when its member goes; the trigger below revokes it then.
  add column member_id uuid,
  -- The rights of the member limit a token, so it has no limits of its own but its end.
  add constraint api_keys_token check (
    member_id is null or (expires_at is not null and labels = '{}' and cidrs = '{}'));
create index api_keys_of_member on api_keys (org_id, member_id, created_at, id) where member_id is not null;

-- Tokens end with their member, and with its account at the provider: the next account may be another person.
create function end_tokens() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' or (old.person_id is not null and new.person_id is distinct from old.person_id) then
    update api_keys set revoked_at = now()
    where org_id = old.org_id and member_id = old.id and revoked_at is null;
  end if;
  return null;
end
$$;
create trigger org_members_ended
  after delete or update of person_id on org_members
  for each row execute function end_tokens();

-- Every process that caches keys forgets the tokens of a member whose rights change.
create function announce_tokens() returns trigger language plpgsql as $$
begin
  perform pg_notify('sandkeep_keys', id::text) from api_keys
  where org_id = new.org_id and member_id = new.id and revoked_at is null;
  return null;
end
$$;
create trigger org_members_tokens
  after update of role, labels, email, display_name on org_members
  for each row execute function announce_tokens();

-- Sign-ins of the command line that wait for a member to confirm them in the console. They belong to no organization
-- before. The row exists until its use or its end.
create table device_sign_ins (
  -- SHA-256 of the code of the device.
  hash bytea primary key check (octet_length(hash) = 32),
  -- The code that the person types, without the hyphen.
  user_code text collate "C" not null unique,
  -- The name of the device, in its own words.
  client text not null,
  -- The network of the client, which has a bounded number of rows.
  network text collate "C" not null,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  polled_at timestamptz,
  denied boolean not null default false,
  -- The member who confirmed it.
  member_org_id uuid,
  member_id uuid,
  foreign key (member_org_id, member_id) references org_members on delete cascade,
  constraint device_sign_ins_member check (
    (member_org_id is null) = (member_id is null) and not (denied and member_id is not null))
);
create index device_sign_ins_expiry on device_sign_ins (expires_at);
create index device_sign_ins_network on device_sign_ins (network);
