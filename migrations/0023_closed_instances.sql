-- A database that no service may use, and the time of the latest scheduled backup.
-- The release before survives it: it does not read these columns, so it also starts on a closed database.

-- The reason, for the operator: a restore or a move that has not finished, or a move to another database. Null: in use.
alter table instance add column closed text;
-- The time of the latest scheduled backup that is complete.
alter table instance add column backed_up_at timestamptz;
