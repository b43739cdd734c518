-- The events of a type, an actor or a resource, all columns in the same direction: then a place in such an index is one row value,
-- (event_type, occurred_at, id), and a page is read from one place to another (src/events/page-query.ts). With the time descending
-- behind an ascending type no comparison of rows can use the index, and before PostgreSQL 17 nothing else steers the planner to it.
-- While the indexes are made (some ten seconds for a million events) no events are written, and so nothing else is; lists and exports
-- go on. Other processes give a write up after 30 seconds: with several million events, stop them before the upgrade.

create index events_of_type on events (org_id, event_type, occurred_at, id);
create index events_of_actor on events (org_id, actor_id, occurred_at, id);
create index events_of_resource on events (org_id, resource_id, occurred_at, id) where resource_id is not null;
