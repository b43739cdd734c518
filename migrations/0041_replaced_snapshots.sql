-- A snapshot replaces the one that its caller may delete, instead of any with its name.
-- The release before survives it: it makes no snapshots.

-- The ready snapshot with the name at the request. Null: there was none.
alter table snapshots add column replaced_id uuid;
