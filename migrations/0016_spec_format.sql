-- A column says in which format the text of a specification is, which a leading tab of the text said before.
-- The release before survives it: it serializes texts without a tab again for each answer, and its own texts have no format here.
-- 100,000 sandboxes take some 5 seconds, in which no sandbox is written.

alter table sandboxes add column spec_format smallint;

-- Removed sandboxes are never shown, and stay as they are.
update sandboxes set spec = substr(spec::text, 2)::json, spec_format = 1
where removed_at is null and starts_with(spec::text, E'\t');

-- The release before and operators change specifications without their format.
create function clear_spec_format() returns trigger language plpgsql as $$
begin
  new.spec_format = null;
  return new;
end
$$;
create trigger clear_spec_format before update of spec on sandboxes
  for each row execute function clear_spec_format();
