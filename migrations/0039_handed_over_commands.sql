-- A sandbox of a pool gets the command, the scripts and the working directory of its create after its start.
-- The release before survives it: it gives such a sandbox only to creates without them.

-- Warm: the parts that a create can have of it. Given: those that it gets at each start. Null: none.
alter table sandboxes add column takes text[];

-- Process 1 has the late parts of the run.
alter table runs add column handed_over boolean not null default false;
