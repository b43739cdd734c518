-- A run whose caller waits for it, and how long it is wanted without a place. Null: until it runs, or is stopped.
-- The release before survives it: it never ends such a run, as ever.

alter table runs add column wanted_until timestamptz;
