-- Waiting runs are read by organization, and the use of workers is added up by organization.
-- The previous release survives it: its queries are slower while many runs wait.

drop index runs_waiting;
create index runs_waiting on runs (org_id, id) where worker_id is null and started_at is null and end_reason is null;
create index runs_wait_unnoted on runs (org_id, id)
  where worker_id is null and started_at is null and end_reason is null and not wait_noted;
drop index runs_placed;
create index runs_placed on runs (worker_id) include (org_id, vcpus, memory_mib)
  where end_reason is null and worker_id is not null;
drop index sandboxes_disk;
create index sandboxes_disk on sandboxes (worker_id) include (org_id, disk_mib)
  where destroyed_at is null and disk_mib > 0;
