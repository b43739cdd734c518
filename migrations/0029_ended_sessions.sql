-- Sessions that a caller has asked to end.
-- The release before survives it: its sessions end with their clients.

-- Set by the process that took the request. The process that serves the session hears of it by a notification, or at its next
-- renewal of the row, and records the end.
alter table sandbox_sessions add column end_requested_at timestamptz;
