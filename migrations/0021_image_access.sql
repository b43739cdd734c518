-- The images to which organizations have proved access. The release before survives it: it reads none of these rows, and lets
-- its engine pull.

create table image_access (
  org_id uuid not null references orgs on delete cascade,
  -- In its normal form: docker.io/library/python:3.12.
  reference text not null check (length(reference) <= 512),
  -- The image index has this digest, or the manifest of an image without one.
  digest text not null check (digest ~ '^sha256:[0-9a-f]{64}$'),
  proved_at timestamptz not null,
  primary key (org_id, reference)
);
create index image_access_age on image_access (org_id, proved_at);
alter table image_access enable row level security;
create policy own_organization on image_access
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);
