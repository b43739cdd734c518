-- An installation remembers the runtime that it was served with last, so that a missing engine is never replaced by another runtime.
-- The release before survives it: it does not know the column.

alter table instance add column runtime text;

-- Installations of earlier releases: the runtime that has run sandboxes, Docker before the simulated one.
update instance set runtime = case
  when exists (select from sandboxes where runtime = 'docker') then 'docker'
  when exists (select from sandboxes where runtime = 'simulated') then 'simulated'
end;
