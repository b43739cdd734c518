-- Refills of pools read the sandboxes that wait in them, without those that were given away.
-- The release before survives it: it has no use for the column.

-- When the members were last replaced because a started one had another digest. Null: never.
alter table pools add column image_moved_at timestamptz;

-- The given sandboxes of a pool may be thousands, and most of them have ended.
create index sandboxes_waiting on sandboxes (org_id, pool_id, status) where warm and removed_at is null;
drop index sandboxes_of_pool;
create index sandboxes_of_pool on sandboxes (org_id, pool_id, status) where pool_id is not null and removed_at is null;
