-- The entries of the event log by the time of their events: what is exported of an hour is found without walking the whole log, which
-- is in the order of sealing. While the index is made (a second for a million entries) nothing is sealed; events are written meanwhile.
-- The release before survives it.

create index event_log_time on event_log (org_id, occurred_at, seq);
