-- The record of the network of sandboxes, and the reason of a sandbox that a violation of a secret ended.
-- The release before survives it: it writes no record, and shows the reason as it is.

-- Whether the destinations of all sandboxes of the organization are audit events.
alter table orgs add column network_record boolean not null default false;

alter table sandboxes drop constraint sandboxes_stop_reason_check,
  add constraint sandboxes_stop_reason_check check (stop_reason in ('requested', 'idle', 'max_duration', 'quota',
    'command', 'oom', 'disk_full', 'engine', 'lost', 'start_failed', 'secret_violation'));
