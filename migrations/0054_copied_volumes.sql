-- Forks copy the volumes of a sandbox.
-- The release before survives it: it mounts, reads and charges no volume that is being copied. It lists one as deleted.

-- `copying`: the fork fills the volume, and no caller finds it before. Its name and its cap are taken.
alter table volumes
  drop constraint volumes_status_check,
  add constraint volumes_status_check check (status in ('active', 'deleting', 'copying')),
  add column fork_id uuid,
  -- The volume whose files it gets.
  add column copied_from uuid,
  add constraint volumes_copying check (
    (status = 'copying') = (fork_id is not null) and (fork_id is null) = (copied_from is null));

drop index volumes_name;
create unique index volumes_name on volumes (org_id, name) where status <> 'deleting' and removed_at is null;
create index volumes_copying on volumes (org_id, fork_id) where status = 'copying';
