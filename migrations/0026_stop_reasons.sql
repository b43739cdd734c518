-- Why the latest run of a sandbox ended, and whether a run has a command and ends with it.
-- The release before survives it: it leaves the reason of an earlier end in place, until this release starts the sandbox.

alter table sandboxes
  add column stop_reason text check (stop_reason in ('requested', 'idle', 'max_duration', 'quota', 'command', 'oom',
    'disk_full', 'engine', 'lost', 'start_failed')),
  -- For people.
  add column stop_message text;

-- Null: the run has no command.
alter table runs add column command text check (command in ('stays', 'ends_run'));

update runs r set command = case when s.run_spec -> 'endsWithCommand' = 'true' then 'ends_run' else 'stays' end
from sandboxes s
where s.org_id = r.org_id and s.run_id = r.id and r.end_reason is null
  and jsonb_typeof(s.run_spec -> 'cmd') = 'array' and s.run_spec -> 'cmd' <> '[]';
