-- Templates: disks that are built from a Dockerfile, with a name and a tag.
-- The release before survives it: it builds none, and lists the snapshots of templates among those of callers.

-- A build and its result have the same row.
create table templates (
  org_id uuid not null references orgs,
  id uuid not null unique,
  name text collate "C" not null,
  tag text collate "C" not null,
  labels jsonb not null,
  status text not null check (status in ('queued', 'building', 'succeeded', 'failed', 'cancelled')),
  dockerfile text not null,
  build_args jsonb not null,
  -- The fields of the request for its sandboxes.
  sandbox jsonb not null,
  uses_cache boolean not null,
  -- The archive. Null: there is none.
  context_digest text,
  context_bytes bigint,
  timeout_secs integer not null check (timeout_secs > 0),
  runtime text not null,
  -- The engine that runs the build, and then has the snapshot.
  worker_id uuid not null,
  actor json not null,
  -- Written before the sandbox is made, and null again when it is removed.
  sandbox_id uuid,
  steps integer not null,
  steps_done integer not null default 0,
  steps_cached integer not null default 0,
  -- No foreign key: the row outlives its snapshot.
  snapshot_id uuid,
  config jsonb,
  -- The configuration of the image below it, for builds that begin with it.
  image_config jsonb,
  error_code text,
  error_message text,
  -- In the Dockerfile. Null: no line has caused it.
  error_line integer,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  started_at timestamptz,
  completed_at timestamptz,
  -- No caller finds it any more.
  removed_at timestamptz,
  primary key (org_id, id),
  check (status <> 'succeeded' or (snapshot_id is not null and config is not null and image_config is not null)),
  check ((status in ('failed', 'cancelled')) = (error_code is not null)),
  check ((status in ('succeeded', 'failed', 'cancelled')) = (completed_at is not null))
);
create unique index templates_tag on templates (org_id, name, tag) where status = 'succeeded' and removed_at is null;
create index templates_listed on templates (org_id, created_at desc, id desc) where removed_at is null;
create index templates_open on templates (worker_id, created_at) where status in ('queued', 'building');
create index templates_left on templates (worker_id) where sandbox_id is not null;
create index templates_ended on templates (completed_at) where completed_at is not null;
alter table templates enable row level security;
create policy own_organization on templates
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

-- The archive of a build until the build ends. It is stored before the row of the build.
create table template_contexts (
  org_id uuid not null references orgs,
  template_id uuid not null,
  position integer not null,
  bytes bytea not null,
  received_at timestamptz not null,
  primary key (org_id, template_id, position)
);
alter table template_contexts alter column bytes set storage external;
alter table template_contexts enable row level security;
create policy own_organization on template_contexts
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

create table template_logs (
  org_id uuid not null,
  template_id uuid not null,
  position integer not null,
  at timestamptz not null,
  source text not null check (source in ('build', 'stdout', 'stderr')),
  text text not null,
  primary key (org_id, template_id, position),
  foreign key (org_id, template_id) references templates (org_id, id) on delete cascade
);
alter table template_logs enable row level security;
create policy own_organization on template_logs
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

-- The results of steps: a build with the same digest of everything up to a step continues from its snapshot.
create table template_layers (
  org_id uuid not null references orgs,
  worker_id uuid not null,
  digest text collate "C" not null,
  snapshot_id uuid not null,
  -- The build that made or used it last.
  template_id uuid not null,
  used_at timestamptz not null,
  primary key (org_id, worker_id, digest)
);
create index template_layers_used on template_layers (used_at);
create index template_layers_of_snapshot on template_layers (snapshot_id);
alter table template_layers enable row level security;
create policy own_organization on template_layers
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

-- The build that needs a snapshot. Null: a caller asked for it.
alter table snapshots add column template_id uuid;
-- The bytes of the snapshot of an earlier step below it, which is charged by itself.
alter table snapshots add column shared_bytes bigint not null default 0 check (shared_bytes between 0 and size_bytes);
create index snapshots_of_templates on snapshots (worker_id) where template_id is not null and removed_at is null;
