-- A build makes one stage of a Dockerfile, with those that it needs.
-- The release before survives it: it does not read the column, and refuses a Dockerfile with several stages.

alter table templates add column target text;
