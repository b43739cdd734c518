-- Forks: copies of a sandbox that share one capture of its disk.
-- The release before survives it. It shows the disk of a fork as a snapshot with the name of the source. It places the
-- copies also before their disk is captured, and their starts fail then.

-- `fork`: no caller sees the snapshot. Its id is that of the operation, and sandboxes have it as `disk_snapshot_id`.
alter table snapshots add column purpose text not null default 'snapshot' check (purpose in ('snapshot', 'fork')),
  -- The copies that were asked for.
  add column fork_count integer,
  add constraint snapshots_fork_count check ((purpose = 'fork') = (fork_count is not null));

-- A snapshot of the service takes no name.
drop index snapshots_name;
create unique index snapshots_name on snapshots (org_id, name)
  where removed_at is null and purpose = 'snapshot' and (status = 'ready' or (status in ('queued', 'in_progress') and not replaces));
drop index snapshots_replacement;
create unique index snapshots_replacement on snapshots (org_id, name)
  where removed_at is null and purpose = 'snapshot' and status in ('queued', 'in_progress') and replaces;
create index snapshots_forks on snapshots (org_id, created_at desc, id desc) where purpose = 'fork';

-- The size of a worker. The role of requests sees no worker, and learns no more of one.
create function worker_capacity(worker uuid, out vcpus integer, out memory_mib integer, out disk_mib integer)
language sql stable security definer set search_path = pg_catalog
as $$
  select w.vcpus, w.memory_mib, w.disk_mib from public.workers w where w.id = worker
$$;
