-- Snapshots: the disk of a sandbox at one moment, from which other sandboxes are made.
-- The release before survives it: it makes no snapshots. It places no sandbox of one, because its engine does not have the ability
-- `disk_snapshots`.

-- The operation that makes a snapshot has the same row, and the same id.
create table snapshots (
  org_id uuid not null references orgs,
  id uuid not null unique,
  name text collate "C" not null,
  labels jsonb not null,
  status text not null check (status in ('queued', 'in_progress', 'ready', 'failed', 'deleting')),
  -- It takes the name of a ready snapshot when it is ready itself.
  replaces boolean not null,
  record_integrity boolean not null,
  -- The source. No foreign key: a snapshot outlives its sandbox.
  sandbox_id uuid not null,
  sandbox_name text not null,
  image text not null,
  -- Null: the engine does not tell.
  image_digest text,
  -- The snapshot that the sandbox was made from, and its digest.
  parent_id uuid,
  parent_digest text,
  runtime text not null,
  -- The engine that has the disk of the sandbox, and then the snapshot.
  worker_id uuid not null,
  actor json not null,
  attempts integer not null default 0,
  -- Of all that is above the image. Null: it is not made.
  size_bytes bigint check (size_bytes >= 0),
  digest text,
  content_digest text,
  error_code text,
  error_message text,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  -- When it became ready, or failed.
  completed_at timestamptz,
  -- When the latest reading of its size began.
  sampled_at timestamptz,
  purge_at timestamptz,
  -- No caller finds it any more. Accruals stay.
  removed_at timestamptz,
  -- The engine has nothing of it any more.
  erased_at timestamptz,
  primary key (org_id, id),
  check ((status = 'deleting') = (purge_at is not null)),
  check (status not in ('ready', 'deleting') or (size_bytes is not null and digest is not null and completed_at is not null)),
  check ((status = 'failed') = (error_code is not null))
);
create unique index snapshots_name on snapshots (org_id, name)
  where removed_at is null and (status = 'ready' or (status in ('queued', 'in_progress') and not replaces));
-- One replacement of a name at a time.
create unique index snapshots_replacement on snapshots (org_id, name)
  where removed_at is null and status in ('queued', 'in_progress') and replaces;
create index snapshots_listed on snapshots (org_id, created_at desc, id desc) where removed_at is null;
create index snapshots_waiting on snapshots (worker_id, created_at) where status in ('queued', 'in_progress');
create index snapshots_kept on snapshots (worker_id) where erased_at is null;
create index snapshots_purge on snapshots (purge_at) where status = 'deleting' and removed_at is null;
alter table snapshots enable row level security;
create policy own_organization on snapshots
  using (org_id = nullif(current_setting('sandkeep.org_id', true), '')::uuid);

-- The snapshot that the disk of a sandbox was made from. It may be deleted by now.
alter table sandboxes add column disk_snapshot_id uuid;
create index sandboxes_of_snapshot on sandboxes (disk_snapshot_id) where disk_snapshot_id is not null and destroyed_at is null;

alter table quotas add column max_snapshots integer check (max_snapshots >= 0),
  add column max_snapshot_gib integer check (max_snapshot_gib >= 0);
