-- The command of the latest run of a sandbox, and its end.
-- The release before survives it: it leaves the command of an earlier run in place, until this release starts the sandbox.

-- Null: the latest run has no command, or has not started.
alter table sandboxes add column command json;

update sandboxes s
set command = '{"status":"running","exit_code":null,"signal":null,"oom_killed":null,"ended_at":null}'
from runs r
where r.org_id = s.org_id and r.id = s.run_id and r.end_reason is null and r.started_at is not null and r.command is not null;
