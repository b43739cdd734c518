-- Processes forward requests about a sandbox to the process that acts on its engine.
-- The release before survives it: it keeps no address, and forwards nothing.

-- The URL at which other processes reach the holder of the lease. Null: it cannot be reached, or it has just started.
alter table workers add column address text;
-- The machine and network namespace from which the address can be reached. Null: from everywhere.
alter table workers add column address_place text;
