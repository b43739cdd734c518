-- A snapshot that was imported has no sandbox.
-- The release before survives it: it shows the snapshot, and makes no import.

alter table snapshots alter column sandbox_id drop not null, alter column sandbox_name drop not null;
