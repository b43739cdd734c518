-- A build by a key that is narrowed to labels replaces, and begins with, only templates that the key sees.
-- The release before survives it: it does not read the column, and its builds have no labels in it.

alter table templates add column key_labels jsonb not null default '{}';
