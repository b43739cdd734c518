-- The first schema. Nothing ran before it.
--
-- Every key begins with the organization: a request touches one organization, so the store can be spread by it, and a
-- forgotten filter has no index to hide behind. The three exceptions are what must be found or be unique before an
-- organization is known: an API key's prefix, an organization's slug and a sandbox's slug.

-- What all processes on one database share.
create table instance (
  singleton boolean primary key check (singleton),
  id uuid not null,
  -- Signs pagination cursors. Protects nothing but their integrity.
  cursor_key bytea not null check (octet_length(cursor_key) = 32)
);

create table orgs (
  id uuid primary key,
  name text not null,
  slug text not null unique,
  created_at timestamptz not null,
  updated_at timestamptz not null
);

create table api_keys (
  org_id uuid not null references orgs,
  id uuid not null,
  name text not null,
  -- The first 12 characters of the key: enough to find and to recognise it, useless without the other 30.
  prefix text not null,
  -- SHA-256 of the whole key. The key itself is stored nowhere.
  hash bytea not null check (octet_length(hash) = 32),
  created_at timestamptz not null,
  revoked_at timestamptz,
  primary key (org_id, id)
);
create index api_keys_prefix on api_keys (prefix);

create table sandboxes (
  org_id uuid not null references orgs,
  id uuid not null,
  name text collate "C" not null,
  slug text collate "C" not null,
  status text not null check (status in ('created', 'starting', 'running', 'stopping', 'stopped', 'failed')),
  status_reason text check (status_reason in ('scheduling', 'insufficient_capacity')),
  ephemeral boolean not null,
  created_at timestamptz not null,
  last_failure_message text,
  -- The public projection (contract section 2.2), made once when the spec is resolved.
  spec json,
  -- What the runtime is given. Null for history that was imported: it can be read but not run.
  run_spec jsonb,
  -- The runtime that holds it. Null for imported history.
  runtime text,
  -- The run under way, or the latest one; see runs. Null before the first start and for imported history.
  run_id uuid,
  -- Of the latest run, as the runtime recorded it.
  started_at timestamptz,
  stopped_at timestamptz,
  -- When the row last changed.
  changed_at timestamptz not null,
  -- Gone for every reader; the row stays because usage and events name it.
  removed_at timestamptz,
  -- The runtime holds nothing of it any more. Only set after removed_at.
  destroyed_at timestamptz,
  primary key (org_id, id),
  check (status_reason is null or status = 'starting'),
  check (destroyed_at is null or removed_at is not null),
  check ((runtime is null) = (run_spec is null))
);
create unique index sandboxes_name on sandboxes (org_id, name) where removed_at is null;
create unique index sandboxes_slug on sandboxes (slug) where removed_at is null;
create index sandboxes_created on sandboxes (org_id, created_at desc, id desc) where removed_at is null;
create index sandboxes_status on sandboxes (org_id, status, created_at desc, id desc) where removed_at is null;
-- The reconciler's work list: what is not at rest, whatever the organization.
create index sandboxes_unsettled on sandboxes (runtime, changed_at)
  where runtime is not null and destroyed_at is null
    and (removed_at is not null or status in ('starting', 'running', 'stopping'));
create index sandboxes_lingering on sandboxes (changed_at)
  where ephemeral and removed_at is null and runtime is not null and status in ('stopped', 'failed');

-- Labels beside the sandbox, newest first: the list filters by them at a third of a millisecond, a GIN index over the
-- document at thirty times that (docs/decisions/0004-labels-in-a-side-table.md).
create table sandbox_labels (
  org_id uuid not null,
  key text collate "C" not null,
  value text collate "C" not null,
  created_at timestamptz not null,
  sandbox_id uuid not null,
  primary key (org_id, key, value, created_at, sandbox_id),
  foreign key (org_id, sandbox_id) references sandboxes
);
create index sandbox_labels_sandbox on sandbox_labels (org_id, sandbox_id);

-- A run is [started_at, stopped_at) with the resources it was resolved to. It is written before the runtime is asked
-- to start, so that whatever the runtime holds can be matched to it, and never changes after it is closed.
create table runs (
  org_id uuid not null,
  id uuid not null,
  sandbox_id uuid not null,
  vcpus int not null check (vcpus >= 0),
  memory_mib int not null check (memory_mib >= 0),
  disk_mib int not null check (disk_mib >= 0),
  -- From the runtime's own record. Null while it has not started, and for good when it never did.
  started_at timestamptz,
  stopped_at timestamptz,
  -- When the runtime was last seen to hold it running: the end of a run whose record was lost with its container.
  seen_at timestamptz,
  -- Why it ended. Null while it is under way.
  end_reason text,
  primary key (org_id, id),
  foreign key (org_id, sandbox_id) references sandboxes,
  check (stopped_at is null or stopped_at >= started_at),
  check (stopped_at is null or end_reason is not null),
  -- A closed run without an end would count as running for ever.
  check (end_reason is null or started_at is null or stopped_at is not null)
);
create index runs_sandbox on runs (org_id, sandbox_id);
create index runs_time on runs (org_id, started_at, stopped_at) where started_at is not null;
create unique index runs_under_way on runs (org_id, sandbox_id) where end_reason is null;

create table volumes (
  org_id uuid not null references orgs,
  id uuid not null,
  kind text not null check (kind in ('host', 'managed')),
  name text collate "C",
  labels json not null default '{}',
  capacity_gib int check (capacity_gib >= 1),
  status text not null check (status in ('active', 'deleting')),
  created_at timestamptz not null,
  updated_at timestamptz not null,
  -- Until then a deletion can be taken back.
  purge_at timestamptz,
  -- Data gone. The id stays taken; accruals stay.
  removed_at timestamptz,
  primary key (org_id, id),
  check ((kind = 'host') = (name is null)),
  check (kind = 'managed' or status = 'active'),
  check ((status = 'deleting') = (purge_at is not null))
);
create unique index volumes_host on volumes (org_id) where kind = 'host' and removed_at is null;
create unique index volumes_name on volumes (org_id, name) where status = 'active' and removed_at is null;
create index volumes_purge on volumes (purge_at) where status = 'deleting' and removed_at is null;

-- Which sandbox mounts which volume. Kept apart from the spec, from which volume ids are left out.
create table sandbox_volumes (
  org_id uuid not null,
  volume_id uuid not null,
  sandbox_id uuid not null,
  primary key (org_id, volume_id, sandbox_id),
  foreign key (org_id, volume_id) references volumes,
  foreign key (org_id, sandbox_id) references sandboxes
);
create index sandbox_volumes_sandbox on sandbox_volumes (org_id, sandbox_id);

-- A reading of a volume's size and the time it stands for. No foreign key: accruals outlive their volume, and history
-- may begin after it.
create table accruals (
  org_id uuid not null references orgs,
  volume_id uuid not null,
  from_at timestamptz not null,
  to_at timestamptz not null,
  used_mib numeric not null check (used_mib >= 0),
  primary key (org_id, volume_id, from_at),
  check (to_at >= from_at)
);
create index accruals_time on accruals (org_id, from_at, to_at);

create table events (
  org_id uuid not null references orgs,
  id uuid not null,
  occurred_at timestamptz not null,
  category text collate "C" not null,
  event_type text collate "C" not null,
  actor json not null,
  payload json not null,
  -- Copies of what filters ask for.
  actor_kind text collate "C" not null,
  actor_id text collate "C" not null,
  resource_id uuid,
  primary key (org_id, id)
);
create index events_time on events (org_id, occurred_at desc, id desc);
create index events_type on events (org_id, event_type, occurred_at desc, id desc);
create index events_resource on events (org_id, resource_id, occurred_at desc, id desc) where resource_id is not null;
