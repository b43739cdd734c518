-- What those of the migration before are in place of. Each is dropped in no time, but waits for every export under way, and all who read or
-- write events would wait behind it: it gives way, and is tried again.
-- The release before survives it: to it the new ones have the same order, read backwards.

set local lock_timeout = '100ms';
drop index events_type, events_actor, events_resource;
