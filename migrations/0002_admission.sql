-- Admission: quotas, idempotency keys, members.
-- The release before survives it; an organization that it makes after this has no quotas, and no request of it is
-- admitted by this release until it has.

-- What an organization may have. Null is unlimited; zero is zero.
create table quotas (
  org_id uuid primary key references orgs,
  max_sandboxes int check (max_sandboxes >= 0),
  -- Starting and running ones.
  max_concurrent_ephemeral_running int check (max_concurrent_ephemeral_running >= 0),
  max_concurrent_persistent_running int check (max_concurrent_persistent_running >= 0),
  max_vcpus_per_sandbox int check (max_vcpus_per_sandbox >= 0),
  max_memory_mib_per_sandbox int check (max_memory_mib_per_sandbox >= 0),
  max_disk_size_mib_per_sandbox int check (max_disk_size_mib_per_sandbox >= 0),
  max_uptime_minutes_per_sandbox int check (max_uptime_minutes_per_sandbox >= 0),
  -- All caps of volumes together.
  max_total_storage_gib int check (max_total_storage_gib >= 0),
  -- Of a UTC month.
  included_vcpu_hours int check (included_vcpu_hours >= 0),
  included_memory_gib_hours int check (included_memory_gib_hours >= 0),
  included_disk_gib_hours int check (included_disk_gib_hours >= 0),
  included_storage_gib int check (included_storage_gib >= 0),
  -- The included hours are a wall, not only a figure to account by.
  hard_cap boolean not null default false,
  -- Nothing may be started.
  is_suspended boolean not null default false,
  updated_at timestamptz not null
);
insert into quotas (org_id, updated_at) select id, now() from orgs;

-- What counts against the two limits of what runs, and what is stopped when the hours are used up.
create index sandboxes_running on sandboxes (org_id, ephemeral)
  where removed_at is null and runtime is not null and status in ('starting', 'running');
-- The runs of the current month without a look at those of all months before.
create index runs_stopped on runs (org_id, stopped_at) where started_at is not null;

-- The longest the run may take: the smaller of what was asked for and what the organization allows. Null is for ever.
alter table runs add column max_duration_secs bigint check (max_duration_secs >= 0);
update runs r set max_duration_secs = (s.run_spec ->> 'maxDurationSecs')::bigint
from sandboxes s
where s.org_id = r.org_id and s.id = r.sandbox_id and r.end_reason is null;

-- Writes that were asked for under a key, so that a request sent twice is carried out once. The row is written in the
-- transaction of the write.
create table idempotency_keys (
  org_id uuid not null references orgs,
  key text collate "C" not null,
  -- HMAC-SHA-256 of the request. The body itself, which may hold secrets, is stored nowhere.
  fingerprint bytea not null check (octet_length(fingerprint) = 32),
  -- What was answered. Null inside the transaction that makes the row, and while work on files is under way.
  answer json,
  -- Whose work on files is under way under the key. It renews created_at until there is an answer.
  claim uuid,
  -- False for the answer to an admission whose caller waits for more.
  final boolean not null default false,
  created_at timestamptz not null,
  primary key (org_id, key)
);
create index idempotency_keys_created on idempotency_keys (created_at);

-- People, for contact and audit. They hold no password here: what opens an organization is an API key.
create table org_members (
  org_id uuid not null references orgs,
  id uuid not null,
  user_id uuid not null,
  email text collate "C" not null,
  role text not null check (role in ('owner', 'admin', 'member', 'viewer')),
  display_name text,
  joined_at timestamptz not null,
  primary key (org_id, id)
);
create unique index org_members_email on org_members (org_id, lower(email));
create index org_members_joined on org_members (org_id, joined_at, id);
