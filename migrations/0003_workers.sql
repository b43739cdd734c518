-- Workers share the sandboxes of one database: placement by capacity, and leases that expire.
-- No release came before it, so there is no sandbox that ran without a worker.

-- A worker is one engine that runs sandboxes. Of the processes that are attached to it one at a time acts on it: the
-- holder of the lease. Workers serve all organizations, so their key does not begin with one.
create table workers (
  -- The engine says who it is, so that its worker stays the same over restarts and reinstallations of the service.
  id uuid primary key,
  runtime text not null,
  -- The machine's name, for people.
  name text not null,
  capabilities text[] not null,
  -- What it can hold, all sandboxes together. Without a figure for the disk that is not counted.
  vcpus int not null check (vcpus >= 1),
  memory_mib int not null check (memory_mib >= 1),
  disk_mib int check (disk_mib >= 0),
  -- Which process has the lease; see src/workers/holder.ts.
  holder text not null,
  -- Grows whenever the lease changes hands. Who acts under an older one is cut off.
  epoch bigint not null,
  expires_at timestamptz not null,
  registered_at timestamptz not null
);

-- Where its disk is. Set when it is first placed; from then on it starts there and nowhere else.
alter table sandboxes add column worker_id uuid references workers;
-- Of that disk, what counts against the worker until the sandbox is destroyed.
alter table sandboxes add column disk_mib int not null default 0 check (disk_mib >= 0);
alter table runs add column worker_id uuid;
-- After how long without activity it ends. Null: never.
alter table runs add column idle_timeout_secs bigint check (idle_timeout_secs >= 1);
-- Why the run was asked to end. Null when nobody asked.
alter table runs add column stop_reason text;

-- The queue of those that wait for a place. Run ids are UUIDv7, so their order is the order of arrival.
create index runs_waiting on runs (id) where worker_id is null and started_at is null and end_reason is null;
-- What counts against a worker.
create index runs_placed on runs (worker_id) include (vcpus, memory_mib) where end_reason is null and worker_id is not null;
create index sandboxes_disk on sandboxes (worker_id) include (disk_mib) where destroyed_at is null and disk_mib > 0;

-- The reconciler's work list is a worker's now.
drop index sandboxes_unsettled;
create index sandboxes_unsettled on sandboxes (worker_id, changed_at)
  where runtime is not null and destroyed_at is null
    and (removed_at is not null or status in ('starting', 'running', 'stopping'));
