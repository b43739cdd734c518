-- The form in which a webhook gets its events.
-- The release before survives it: its webhooks have the default form. It sends that form to every webhook.

alter table webhooks add column format text not null default 'sandkeep'
  check (format in ('sandkeep', 'cloudevents', 'ocsf'));
