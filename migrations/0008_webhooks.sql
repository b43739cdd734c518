-- Webhooks: addresses that are sent the audit events of an organization.
-- The release before survives it; it sends nothing.

create table webhooks (
  org_id uuid not null references orgs,
  id uuid not null,
  url text not null,
  description text,
  -- What is sent: any of the types that do not begin with `!` (when there are some), none of those that do.
  event_types text[] not null,
  status text not null check (status in ('active', 'disabled')),
  -- Why Sandkeep disabled it. Null when somebody did, and while it is active.
  disabled_reason text check (disabled_reason in ('failing', 'gone', 'secret_lost')),
  -- The secret that signs, sealed; see src/webhooks/secret.ts. Null when the keys it was sealed under were lost.
  key_id text,
  sealed bytea,
  -- The secrets before, newest first, which sign as well until then.
  old_key_ids text[] not null default '{}',
  old_sealed bytea[] not null default '{}',
  old_until timestamptz,
  -- The last `seq` of the event log that was looked at. What matched has a delivery.
  position bigint not null check (position >= 0),
  -- Failures since the receiver last answered as one that is there, when the first of them was, and until when nothing is sent;
  -- see src/webhooks/receiver.ts.
  failures int not null default 0 check (failures >= 0),
  failing_since timestamptz,
  resume_at timestamptz,
  created_at timestamptz not null,
  -- Who made it, as it was then.
  created_by json not null,
  updated_at timestamptz not null,
  -- Then it was deleted. The row stays, for nobody to see, until the last of its deliveries has gone.
  deleted_at timestamptz,
  primary key (org_id, id),
  check ((key_id is null) = (sealed is null)),
  check (cardinality(old_key_ids) = cardinality(old_sealed) and (cardinality(old_sealed) = 0) = (old_until is null)),
  check (disabled_reason is null or status = 'disabled'),
  check ((failures = 0) = (failing_since is null)),
  check (deleted_at is null or (status = 'disabled' and sealed is null))
);
create index webhooks_active on webhooks (org_id, id) where status = 'active';
create index webhooks_deleted on webhooks (org_id, id) where deleted_at is not null;
create index webhooks_old_secrets on webhooks (old_until) where old_until is not null;

-- One event for one webhook. Made when it is about to be sent, and only so many ahead of what was answered.
create table webhook_deliveries (
  org_id uuid not null,
  webhook_id uuid not null,
  id uuid not null,
  event_id uuid not null,
  event_type text collate "C" not null,
  -- Its place in the event log. Null for a test, which is sent before the log has it.
  seq bigint,
  status text not null check (status in ('pending', 'delivered', 'failed')),
  -- How often it was tried, and what came of the latest attempts, oldest first.
  attempts int not null default 0,
  -- How often until somebody last asked for it to be sent again.
  tried_before int not null default 0,
  results jsonb not null default '[]',
  -- The receiver answered last that it does not want this event. It comes after all others, and does not count with them.
  refused boolean not null default false,
  -- When it is tried next, or when whoever is trying it counts as gone. Null when it is settled.
  due_at timestamptz,
  -- Whose attempt is under way.
  claim uuid,
  -- An attempt that fails after this was the last. Set when it is tried first: what waits while the webhook is disabled or its
  -- receiver is down loses nothing by it.
  expires_at timestamptz,
  created_at timestamptz not null,
  settled_at timestamptz,
  primary key (org_id, webhook_id, id),
  foreign key (org_id, webhook_id) references webhooks,
  check ((status = 'pending') = (due_at is not null)),
  check ((status = 'pending') = (settled_at is null)),
  check (expires_at is not null or (attempts = 0 and claim is null))
);
create index webhook_deliveries_due on webhook_deliveries (org_id, webhook_id, refused, due_at) where status = 'pending';
create index webhook_deliveries_listed on webhook_deliveries (org_id, webhook_id, created_at desc, id desc);
create index webhook_deliveries_listed_status on webhook_deliveries (org_id, webhook_id, status, created_at desc, id desc);
create index webhook_deliveries_tests on webhook_deliveries (due_at) where status = 'pending' and seq is null;
create index webhook_deliveries_settled on webhook_deliveries (settled_at) where status <> 'pending';
-- A crash between reading the log and noting how far does not send an event twice.
create unique index webhook_deliveries_seq on webhook_deliveries (org_id, webhook_id, seq) where seq is not null;
