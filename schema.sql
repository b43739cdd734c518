-- Made by "npm run generate" from a freshly migrated database. Do not edit.

create table accruals (
  org_id uuid not null,
  volume_id uuid not null,
  from_at timestamp with time zone not null,
  to_at timestamp with time zone not null,
  used_mib numeric not null,
  constraint accruals_pkey PRIMARY KEY (org_id, volume_id, from_at),
  constraint accruals_check CHECK ((to_at >= from_at)),
  constraint accruals_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id),
  constraint accruals_used_mib_check CHECK ((used_mib >= (0)::numeric))
);
CREATE INDEX accruals_end ON public.accruals USING btree (org_id, to_at, from_at);
CREATE INDEX accruals_long ON public.accruals USING btree (org_id, to_at, from_at) WHERE ((to_at - from_at) > '48:00:00'::interval);
create policy own_organization on accruals using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table api_key_replaced_secrets (
  org_id uuid not null,
  key_id uuid not null,
  prefix text not null,
  hash bytea not null,
  until timestamp with time zone not null,
  constraint api_key_replaced_secrets_pkey PRIMARY KEY (org_id, key_id, hash),
  constraint api_key_replaced_secrets_hash_check CHECK ((octet_length(hash) = 32)),
  constraint api_key_replaced_secrets_org_id_key_id_fkey FOREIGN KEY (org_id, key_id) REFERENCES api_keys(org_id, id)
);
CREATE INDEX api_key_replaced_secrets_prefix ON public.api_key_replaced_secrets USING btree (prefix);
CREATE INDEX api_key_replaced_secrets_until ON public.api_key_replaced_secrets USING btree (until);
create policy own_organization on api_key_replaced_secrets using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table api_keys (
  org_id uuid not null,
  id uuid not null,
  name text not null,
  prefix text not null,
  hash bytea not null,
  created_at timestamp with time zone not null,
  revoked_at timestamp with time zone,
  scopes text[] not null default '{org:admin}'::text[],
  labels jsonb not null default '{}'::jsonb,
  cidrs text[] not null default '{}'::text[],
  expires_at timestamp with time zone,
  created_by json,
  last_used_at timestamp with time zone,
  rotated_at timestamp with time zone,
  expiry_recorded boolean not null default false,
  refusals_recorded_at timestamp with time zone,
  member_id uuid,
  of_org_id uuid,
  of_token_id uuid,
  constraint api_keys_pkey PRIMARY KEY (org_id, id),
  constraint api_keys_hash_check CHECK ((octet_length(hash) = 32)),
  constraint api_keys_labels_check CHECK ((jsonb_typeof(labels) = 'object'::text)),
  constraint api_keys_narrowed CHECK (((labels = '{}'::jsonb) OR (scopes <@ '{sandboxes:read,sandboxes:write,sandboxes:exec}'::text[]))),
  constraint api_keys_of_token CHECK ((((of_org_id IS NULL) = (of_token_id IS NULL)) AND ((of_token_id IS NULL) OR (member_id IS NOT NULL)))),
  constraint api_keys_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id),
  constraint api_keys_scopes_check CHECK ((cardinality(scopes) > 0)),
  constraint api_keys_token CHECK (((member_id IS NULL) OR ((expires_at IS NOT NULL) AND (labels = '{}'::jsonb) AND (cidrs = '{}'::text[]))))
);
CREATE INDEX api_keys_created ON public.api_keys USING btree (org_id, created_at, id);
CREATE INDEX api_keys_ended_elsewhere ON public.api_keys USING btree (revoked_at) WHERE ((of_token_id IS NOT NULL) AND (revoked_at IS NOT NULL) AND (NOT expiry_recorded));
CREATE INDEX api_keys_expiring ON public.api_keys USING btree (expires_at) WHERE ((NOT expiry_recorded) AND (revoked_at IS NULL));
CREATE INDEX api_keys_of_member ON public.api_keys USING btree (org_id, member_id, created_at, id) WHERE (member_id IS NOT NULL);
CREATE UNIQUE INDEX api_keys_of_token ON public.api_keys USING btree (of_token_id, member_id) WHERE (of_token_id IS NOT NULL);
CREATE INDEX api_keys_prefix ON public.api_keys USING btree (prefix);
CREATE TRIGGER api_keys_changed AFTER DELETE OR UPDATE OF prefix, hash, revoked_at, scopes, labels, cidrs, expires_at, name ON public.api_keys FOR EACH ROW EXECUTE FUNCTION announce_key();
CREATE TRIGGER api_keys_revoked AFTER UPDATE OF revoked_at ON public.api_keys FOR EACH ROW WHEN (((new.revoked_at IS NOT NULL) AND (old.revoked_at IS NULL) AND (new.of_token_id IS NULL) AND (new.member_id IS NOT NULL))) EXECUTE FUNCTION end_tokens_elsewhere();
create policy own_organization on api_keys using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table budget_days (
  org_id uuid not null,
  budget_id uuid not null,
  day date not null,
  version text not null,
  micros numeric not null,
  vcpu_micros numeric not null,
  memory_mib_micros numeric not null,
  disk_mib_micros numeric not null,
  constraint budget_days_pkey PRIMARY KEY (org_id, budget_id, day),
  constraint budget_days_org_id_budget_id_fkey FOREIGN KEY (org_id, budget_id) REFERENCES budgets(org_id, id) ON DELETE CASCADE
);
create policy own_organization on budget_days using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table budget_notices (
  org_id uuid not null,
  budget_id uuid not null,
  month date not null,
  threshold integer not null,
  constraint budget_notices_pkey PRIMARY KEY (org_id, budget_id, month, threshold),
  constraint budget_notices_org_id_budget_id_fkey FOREIGN KEY (org_id, budget_id) REFERENCES budgets(org_id, id) ON DELETE CASCADE
);
create policy own_organization on budget_notices using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table budgets (
  org_id uuid not null,
  id uuid not null,
  name text collate "C" not null,
  scope text not null,
  label_key text collate "C",
  label_value text collate "C",
  api_key_id uuid,
  measure text not null,
  amount numeric(18,6) not null,
  currency text,
  thresholds integer[] not null,
  action text not null,
  created_at timestamp with time zone not null,
  created_by json not null,
  updated_at timestamp with time zone not null,
  checked_until timestamp with time zone not null,
  next_check_at timestamp with time zone not null,
  used_ratio double precision,
  constraint budgets_pkey PRIMARY KEY (org_id, id),
  constraint budgets_action_check CHECK ((action = ANY (ARRAY['warn'::text, 'refuse_starts'::text, 'stop'::text]))),
  constraint budgets_amount_check CHECK ((amount > (0)::numeric)),
  constraint budgets_check CHECK (((scope = 'label'::text) = (label_key IS NOT NULL))),
  constraint budgets_check1 CHECK (((label_key IS NULL) = (label_value IS NULL))),
  constraint budgets_check2 CHECK (((scope = 'api_key'::text) = (api_key_id IS NOT NULL))),
  constraint budgets_check3 CHECK (((measure = 'cost'::text) = (currency IS NOT NULL))),
  constraint budgets_measure_check CHECK ((measure = ANY (ARRAY['cost'::text, 'vcpu_hours'::text, 'memory_gib_hours'::text, 'disk_gib_hours'::text, 'sandbox_hours'::text]))),
  constraint budgets_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id),
  constraint budgets_scope_check CHECK ((scope = ANY (ARRAY['organization'::text, 'label'::text, 'api_key'::text])))
);
CREATE INDEX budgets_due ON public.budgets USING btree (next_check_at);
CREATE INDEX budgets_enforced ON public.budgets USING btree (org_id) WHERE (action <> 'warn'::text);
CREATE UNIQUE INDEX budgets_name ON public.budgets USING btree (org_id, name);
create policy own_organization on budgets using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table console_sessions (
  org_id uuid not null,
  hash bytea not null,
  id uuid not null,
  key_id uuid,
  secret_prefix text,
  created_at timestamp with time zone not null,
  expires_at timestamp with time zone not null,
  member_id uuid,
  idle_at timestamp with time zone,
  person_id uuid,
  sid text collate "C",
  sealed_by text,
  sealed bytea,
  passkey_id uuid,
  constraint console_sessions_pkey PRIMARY KEY (org_id, hash),
  constraint console_sessions_hash_check CHECK ((octet_length(hash) = 32)),
  constraint console_sessions_hash_key UNIQUE (hash),
  constraint console_sessions_holder CHECK ((((key_id IS NULL) <> (member_id IS NULL)) AND ((key_id IS NULL) = (secret_prefix IS NULL)) AND ((member_id IS NULL) = (idle_at IS NULL)))),
  constraint console_sessions_id_key UNIQUE (id),
  constraint console_sessions_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id),
  constraint console_sessions_org_id_key_id_fkey FOREIGN KEY (org_id, key_id) REFERENCES api_keys(org_id, id),
  constraint console_sessions_org_id_member_id_fkey FOREIGN KEY (org_id, member_id) REFERENCES org_members(org_id, id) ON DELETE CASCADE,
  constraint console_sessions_org_id_passkey_id_fkey FOREIGN KEY (org_id, passkey_id) REFERENCES member_passkeys(org_id, id) ON DELETE CASCADE,
  constraint console_sessions_passkey CHECK (((passkey_id IS NULL) OR (member_id IS NOT NULL))),
  constraint console_sessions_person CHECK (((person_id IS NULL) OR (member_id IS NOT NULL))),
  constraint console_sessions_person_id_fkey FOREIGN KEY (person_id) REFERENCES people(id)
);
CREATE INDEX console_sessions_expiry ON public.console_sessions USING btree (expires_at);
CREATE INDEX console_sessions_of_key ON public.console_sessions USING btree (org_id, key_id, created_at);
CREATE INDEX console_sessions_of_member ON public.console_sessions USING btree (org_id, member_id, created_at);
CREATE INDEX console_sessions_of_passkey ON public.console_sessions USING btree (org_id, passkey_id) WHERE (passkey_id IS NOT NULL);
CREATE INDEX console_sessions_of_person ON public.console_sessions USING btree (person_id) WHERE (person_id IS NOT NULL);
CREATE TRIGGER console_sessions_deleted AFTER DELETE ON public.console_sessions FOR EACH STATEMENT EXECUTE FUNCTION announce_console_sessions();
create policy own_organization on console_sessions using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table device_sign_ins (
  hash bytea not null,
  user_code text collate "C" not null,
  client text not null,
  network text collate "C" not null,
  created_at timestamp with time zone not null,
  expires_at timestamp with time zone not null,
  polled_at timestamp with time zone,
  denied boolean not null default false,
  member_org_id uuid,
  member_id uuid,
  constraint device_sign_ins_pkey PRIMARY KEY (hash),
  constraint device_sign_ins_hash_check CHECK ((octet_length(hash) = 32)),
  constraint device_sign_ins_member CHECK ((((member_org_id IS NULL) = (member_id IS NULL)) AND (NOT (denied AND (member_id IS NOT NULL))))),
  constraint device_sign_ins_member_org_id_member_id_fkey FOREIGN KEY (member_org_id, member_id) REFERENCES org_members(org_id, id) ON DELETE CASCADE,
  constraint device_sign_ins_user_code_key UNIQUE (user_code)
);
CREATE INDEX device_sign_ins_expiry ON public.device_sign_ins USING btree (expires_at);
CREATE INDEX device_sign_ins_network ON public.device_sign_ins USING btree (network);

create table event_chains (
  org_id uuid not null,
  seq bigint not null default 0,
  link bytea,
  at timestamp with time zone,
  marked_from bigint,
  key_id text,
  signature bytea,
  retention_months integer,
  retention_at timestamp with time zone,
  retention_key_id text,
  retention_signature bytea,
  constraint event_chains_pkey PRIMARY KEY (org_id),
  constraint event_chains_check CHECK (((seq = 0) = (link IS NULL))),
  constraint event_chains_check1 CHECK ((((link IS NULL) = (signature IS NULL)) AND ((link IS NULL) = (at IS NULL)) AND ((link IS NULL) = (key_id IS NULL)))),
  constraint event_chains_link_check CHECK ((octet_length(link) = 32)),
  constraint event_chains_marked_from_check CHECK ((marked_from >= 1)),
  constraint event_chains_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id),
  constraint event_chains_retention_months_check CHECK ((retention_months >= 1)),
  constraint event_chains_seq_check CHECK ((seq >= 0))
);
create policy own_organization on event_chains using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table event_checkpoints (
  org_id uuid not null,
  seq bigint not null,
  link bytea not null,
  at timestamp with time zone not null,
  marked_from bigint,
  key_id text not null,
  signature bytea not null,
  constraint event_checkpoints_pkey PRIMARY KEY (org_id, seq),
  constraint event_checkpoints_link_check CHECK ((octet_length(link) = 32)),
  constraint event_checkpoints_marked_from_check CHECK ((marked_from >= 1)),
  constraint event_checkpoints_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id)
);
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON public.event_checkpoints FOR EACH STATEMENT EXECUTE FUNCTION refuse_event_change();
CREATE TRIGGER only_added BEFORE DELETE OR UPDATE ON public.event_checkpoints FOR EACH ROW EXECUTE FUNCTION refuse_event_change();
create policy own_organization on event_checkpoints using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table event_drops (
  org_id uuid not null,
  seq bigint not null,
  link bytea not null,
  at timestamp with time zone not null,
  dropped_before timestamp with time zone not null,
  base_seq bigint not null,
  base_link bytea not null,
  key_id text not null,
  signature bytea not null,
  constraint event_drops_pkey PRIMARY KEY (org_id, seq),
  constraint event_drops_base_link_check CHECK ((octet_length(base_link) = 32)),
  constraint event_drops_check CHECK (((base_seq >= 0) AND (base_seq <= seq))),
  constraint event_drops_link_check CHECK ((octet_length(link) = 32)),
  constraint event_drops_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id)
);
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON public.event_drops FOR EACH STATEMENT EXECUTE FUNCTION refuse_event_change();
CREATE TRIGGER only_added BEFORE DELETE OR UPDATE ON public.event_drops FOR EACH ROW EXECUTE FUNCTION refuse_event_change();
create policy own_organization on event_drops using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table event_keys (
  id text not null,
  public_key bytea not null,
  added_at timestamp with time zone not null,
  constraint event_keys_pkey PRIMARY KEY (id),
  constraint event_keys_public_key_check CHECK ((octet_length(public_key) = 32))
);

create table event_log (
  org_id uuid not null,
  seq bigint not null,
  event_id uuid not null,
  occurred_at timestamp with time zone not null,
  leaf bytea not null,
  unmarked boolean not null,
  link bytea not null,
  constraint event_log_pkey PRIMARY KEY (org_id, seq),
  constraint event_log_leaf_check CHECK ((octet_length(leaf) = 32)),
  constraint event_log_link_check CHECK ((octet_length(link) = 32)),
  constraint event_log_seq_check CHECK ((seq >= 1))
);
CREATE UNIQUE INDEX event_log_event ON public.event_log USING btree (org_id, event_id);
CREATE INDEX event_log_time ON public.event_log USING btree (org_id, occurred_at, seq);
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON public.event_log FOR EACH STATEMENT EXECUTE FUNCTION refuse_event_change();
CREATE TRIGGER only_added BEFORE DELETE OR UPDATE ON public.event_log FOR EACH ROW EXECUTE FUNCTION refuse_event_change();
create policy own_organization on event_log using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table event_log_verifications (
  org_id uuid not null,
  verified_at timestamp with time zone not null,
  entries bigint not null,
  fault text,
  constraint event_log_verifications_pkey PRIMARY KEY (org_id),
  constraint event_log_verifications_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id) ON DELETE CASCADE
);
create policy own_organization on event_log_verifications using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table event_months (
  org_id uuid not null,
  event_type text collate "C" not null,
  category text collate "C" not null,
  month timestamp with time zone not null,
  constraint event_months_pkey PRIMARY KEY (org_id, event_type, month, category)
);
CREATE INDEX event_months_month ON public.event_months USING btree (org_id, month);
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON public.event_months FOR EACH STATEMENT EXECUTE FUNCTION refuse_event_change();
CREATE TRIGGER only_added BEFORE DELETE OR UPDATE ON public.event_months FOR EACH ROW EXECUTE FUNCTION refuse_event_change();
create policy own_organization on event_months using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table event_traces (
  org_id uuid not null,
  event_id uuid not null,
  resource_id uuid,
  traceparent text not null,
  created_at timestamp with time zone not null,
  constraint event_traces_pkey PRIMARY KEY (org_id, event_id),
  constraint event_traces_traceparent_check CHECK ((traceparent ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-01$'::text))
);
CREATE INDEX event_traces_age ON public.event_traces USING btree (created_at);
CREATE INDEX event_traces_of_resource ON public.event_traces USING btree (org_id, resource_id, event_id);
create policy own_organization on event_traces using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table events (
  org_id uuid not null,
  id uuid not null,
  occurred_at timestamp with time zone not null,
  category text collate "C" not null,
  event_type text collate "C" not null,
  actor json not null,
  payload json not null,
  actor_kind text collate "C" not null,
  actor_id text collate "C" not null,
  resource_id uuid,
  leaf bytea,
  mark bytea,
  constraint events_pkey PRIMARY KEY (org_id, occurred_at, id),
  constraint events_leaf_check CHECK ((octet_length(leaf) = 32)),
  constraint events_mark_check CHECK ((octet_length(mark) = 16)),
  constraint events_org_id_fkey1 FOREIGN KEY (org_id) REFERENCES orgs(id)
) partition by RANGE (occurred_at);
CREATE INDEX events_of_actor ON ONLY public.events USING btree (org_id, actor_id, occurred_at, id);
CREATE INDEX events_of_resource ON ONLY public.events USING btree (org_id, resource_id, occurred_at, id) WHERE (resource_id IS NOT NULL);
CREATE INDEX events_of_type ON ONLY public.events USING btree (org_id, event_type, occurred_at, id);
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON public.events FOR EACH STATEMENT EXECUTE FUNCTION refuse_event_change();
CREATE TRIGGER only_added BEFORE DELETE OR UPDATE ON public.events FOR EACH ROW EXECUTE FUNCTION refuse_event_change();
CREATE TRIGGER queue_events AFTER INSERT ON public.events REFERENCING NEW TABLE AS new_events FOR EACH STATEMENT EXECUTE FUNCTION queue_events();
create policy own_organization on events using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table idempotency_keys (
  org_id uuid not null,
  key text collate "C" not null,
  fingerprint bytea not null,
  answer json,
  claim uuid,
  final boolean not null default false,
  created_at timestamp with time zone not null,
  constraint idempotency_keys_pkey PRIMARY KEY (org_id, key),
  constraint idempotency_keys_fingerprint_check CHECK ((octet_length(fingerprint) = 32)),
  constraint idempotency_keys_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id)
);
CREATE INDEX idempotency_keys_created ON public.idempotency_keys USING btree (created_at);
create policy own_organization on idempotency_keys using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table image_access (
  org_id uuid not null,
  reference text not null,
  digest text not null,
  proved_at timestamp with time zone not null,
  constraint image_access_pkey PRIMARY KEY (org_id, reference),
  constraint image_access_digest_check CHECK ((digest ~ '^sha256:[0-9a-f]{64}$'::text)),
  constraint image_access_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id) ON DELETE CASCADE,
  constraint image_access_reference_check CHECK ((length(reference) <= 512))
);
CREATE INDEX image_access_age ON public.image_access USING btree (org_id, proved_at);
create policy own_organization on image_access using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table instance (
  singleton boolean not null,
  id uuid not null,
  cursor_key bytea not null,
  secret_key_id text,
  price_book_sha256 text,
  runtime text,
  closed text,
  backed_up_at timestamp with time zone,
  authority_certificate text,
  authority_key_id text,
  authority_sealed bytea,
  constraint instance_pkey PRIMARY KEY (singleton),
  constraint instance_authority_check CHECK ((num_nulls(authority_certificate, authority_key_id, authority_sealed) = ANY (ARRAY[0, 3]))),
  constraint instance_cursor_key_check CHECK ((octet_length(cursor_key) = 32)),
  constraint instance_singleton_check CHECK (singleton)
);

create table label_periods (
  org_id uuid not null,
  key text collate "C" not null,
  value text collate "C" not null,
  sandbox_id uuid not null,
  from_at timestamp with time zone not null,
  to_at timestamp with time zone not null,
  constraint label_periods_pkey PRIMARY KEY (org_id, key, value, sandbox_id, from_at),
  constraint label_periods_check CHECK ((from_at < to_at))
);
CREATE INDEX label_periods_sandbox ON public.label_periods USING btree (org_id, sandbox_id);
create policy own_organization on label_periods using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table logout_tokens (
  hash bytea not null,
  expires_at timestamp with time zone not null,
  constraint logout_tokens_pkey PRIMARY KEY (hash),
  constraint logout_tokens_hash_check CHECK ((octet_length(hash) = 32))
);
CREATE INDEX logout_tokens_expiry ON public.logout_tokens USING btree (expires_at);

create table member_invitations (
  org_id uuid not null,
  id uuid not null,
  email text collate "C" not null,
  role text not null,
  labels jsonb not null,
  hash bytea not null,
  created_at timestamp with time zone not null,
  created_by json not null,
  expires_at timestamp with time zone not null,
  constraint member_invitations_pkey PRIMARY KEY (org_id, id),
  constraint member_invitations_hash_check CHECK ((octet_length(hash) = 32)),
  constraint member_invitations_hash_key UNIQUE (hash),
  constraint member_invitations_labels_check CHECK ((jsonb_typeof(labels) = 'object'::text)),
  constraint member_invitations_narrowed CHECK (((labels = '{}'::jsonb) OR (role = ANY (ARRAY['developer'::text, 'member'::text, 'viewer'::text])))),
  constraint member_invitations_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id),
  constraint member_invitations_role_check CHECK ((role = ANY (ARRAY['owner'::text, 'admin'::text, 'developer'::text, 'member'::text, 'viewer'::text, 'finance'::text, 'auditor'::text])))
);
CREATE INDEX member_invitations_created ON public.member_invitations USING btree (org_id, created_at, id);
CREATE UNIQUE INDEX member_invitations_email ON public.member_invitations USING btree (org_id, lower(email));
CREATE INDEX member_invitations_expiry ON public.member_invitations USING btree (expires_at);
create policy own_organization on member_invitations using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table member_links (
  org_id uuid not null,
  member_id uuid not null,
  hash bytea not null,
  created_at timestamp with time zone not null,
  expires_at timestamp with time zone not null,
  constraint member_links_pkey PRIMARY KEY (org_id, member_id),
  constraint member_links_hash_check CHECK ((octet_length(hash) = 32)),
  constraint member_links_hash_key UNIQUE (hash),
  constraint member_links_org_id_member_id_fkey FOREIGN KEY (org_id, member_id) REFERENCES org_members(org_id, id) ON DELETE CASCADE
);
CREATE INDEX member_links_expiry ON public.member_links USING btree (expires_at);
create policy own_organization on member_links using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table member_passkeys (
  org_id uuid not null,
  id uuid not null,
  member_id uuid not null,
  credential_id bytea not null,
  public_key bytea not null,
  counter bigint not null,
  transports text[] not null,
  name text not null,
  created_at timestamp with time zone not null,
  used_at timestamp with time zone,
  constraint member_passkeys_pkey PRIMARY KEY (org_id, id),
  constraint member_passkeys_counter_check CHECK ((counter >= 0)),
  constraint member_passkeys_credential_id_check CHECK (((octet_length(credential_id) >= 1) AND (octet_length(credential_id) <= 1023))),
  constraint member_passkeys_credential_id_key UNIQUE (credential_id),
  constraint member_passkeys_org_id_member_id_fkey FOREIGN KEY (org_id, member_id) REFERENCES org_members(org_id, id) ON DELETE CASCADE,
  constraint member_passkeys_public_key_check CHECK (((octet_length(public_key) >= 1) AND (octet_length(public_key) <= 2048)))
);
CREATE INDEX member_passkeys_of_member ON public.member_passkeys USING btree (org_id, member_id, created_at, id);
create policy own_organization on member_passkeys using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table org_members (
  org_id uuid not null,
  id uuid not null,
  user_id uuid not null,
  email text collate "C" not null,
  role text not null,
  display_name text,
  joined_at timestamp with time zone not null,
  labels jsonb not null default '{}'::jsonb,
  person_id uuid,
  by_groups boolean not null default false,
  constraint org_members_pkey PRIMARY KEY (org_id, id),
  constraint org_members_labels_check CHECK ((jsonb_typeof(labels) = 'object'::text)),
  constraint org_members_narrowed CHECK (((labels = '{}'::jsonb) OR (role = ANY (ARRAY['developer'::text, 'member'::text, 'viewer'::text])))),
  constraint org_members_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id),
  constraint org_members_person UNIQUE (org_id, person_id),
  constraint org_members_person_id_fkey FOREIGN KEY (person_id) REFERENCES people(id),
  constraint org_members_role_check CHECK ((role = ANY (ARRAY['owner'::text, 'admin'::text, 'developer'::text, 'member'::text, 'viewer'::text, 'finance'::text, 'auditor'::text])))
);
CREATE UNIQUE INDEX org_members_email ON public.org_members USING btree (org_id, lower(email));
CREATE INDEX org_members_joined ON public.org_members USING btree (org_id, joined_at, id);
CREATE INDEX org_members_of_person ON public.org_members USING btree (person_id) WHERE (person_id IS NOT NULL);
CREATE TRIGGER org_members_changed AFTER UPDATE OF role, labels, email, display_name, person_id ON public.org_members FOR EACH ROW EXECUTE FUNCTION announce_console_sessions();
CREATE TRIGGER org_members_ended AFTER DELETE OR UPDATE OF person_id ON public.org_members FOR EACH ROW EXECUTE FUNCTION end_tokens();
CREATE TRIGGER org_members_tokens AFTER UPDATE OF role, labels, email, display_name ON public.org_members FOR EACH ROW EXECUTE FUNCTION announce_tokens();
create policy own_organization on org_members using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table orgs (
  id uuid not null,
  name text not null,
  slug text not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  command_lines boolean not null default false,
  network_record boolean not null default false,
  public_previews boolean not null default false,
  preview_notice boolean not null default false,
  constraint orgs_pkey PRIMARY KEY (id),
  constraint orgs_slug_key UNIQUE (slug)
);
CREATE TRIGGER preview_settings_changed AFTER UPDATE OF public_previews, preview_notice ON public.orgs FOR EACH ROW EXECUTE FUNCTION announce_preview_settings();
create policy own_organization on orgs using (id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table passkey_challenges (
  hash bytea not null,
  purpose text not null,
  source bytea not null,
  challenge bytea not null,
  created_at timestamp with time zone not null,
  expires_at timestamp with time zone not null,
  constraint passkey_challenges_pkey PRIMARY KEY (hash),
  constraint passkey_challenges_challenge_check CHECK ((octet_length(challenge) = 32)),
  constraint passkey_challenges_hash_check CHECK ((octet_length(hash) = 32)),
  constraint passkey_challenges_purpose_check CHECK ((purpose = ANY (ARRAY['register'::text, 'sign_in'::text]))),
  constraint passkey_challenges_source_check CHECK ((octet_length(source) = 32))
);
CREATE INDEX passkey_challenges_created ON public.passkey_challenges USING btree (created_at);
CREATE INDEX passkey_challenges_expiry ON public.passkey_challenges USING btree (expires_at);
CREATE INDEX passkey_challenges_of_source ON public.passkey_challenges USING btree (source, created_at);

create table pauses (
  org_id uuid not null,
  run_id uuid not null,
  sandbox_id uuid not null,
  disk_mib integer not null,
  memory_mib integer not null,
  from_at timestamp with time zone not null,
  to_at timestamp with time zone,
  constraint pauses_pkey PRIMARY KEY (org_id, run_id),
  constraint pauses_check CHECK ((to_at >= from_at)),
  constraint pauses_disk_mib_check CHECK ((disk_mib >= 0)),
  constraint pauses_memory_mib_check CHECK ((memory_mib >= 0)),
  constraint pauses_org_id_sandbox_id_fkey FOREIGN KEY (org_id, sandbox_id) REFERENCES sandboxes(org_id, id)
);
CREATE INDEX pauses_ended ON public.pauses USING btree (org_id, to_at) WHERE (to_at IS NOT NULL);
CREATE UNIQUE INDEX pauses_open ON public.pauses USING btree (org_id, sandbox_id) WHERE (to_at IS NULL);
create policy own_organization on pauses using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table people (
  id uuid not null,
  issuer text collate "C" not null,
  subject text collate "C" not null,
  last_org_id uuid,
  created_at timestamp with time zone not null,
  signed_in_at timestamp with time zone not null,
  constraint people_pkey PRIMARY KEY (id),
  constraint people_issuer_subject_key UNIQUE (issuer, subject)
);

create table pools (
  org_id uuid not null,
  id uuid not null,
  name text collate "C" not null,
  request json not null,
  run_spec jsonb not null,
  spec json not null,
  runtime text not null,
  size integer not null,
  most integer,
  image_digest text,
  tag_checked_at timestamp with time zone not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  refilled_at timestamp with time zone not null,
  next_refill_at timestamp with time zone not null,
  failures integer not null default 0,
  last_failure_message text,
  removed_at timestamp with time zone,
  image_moved_at timestamp with time zone,
  constraint pools_pkey PRIMARY KEY (org_id, id),
  constraint pools_check CHECK ((most >= size)),
  constraint pools_id_key UNIQUE (id),
  constraint pools_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id),
  constraint pools_size_check CHECK (((size >= 0) AND (size <= 100)))
);
CREATE INDEX pools_kept ON public.pools USING btree (runtime, refilled_at) WHERE (removed_at IS NULL);
CREATE UNIQUE INDEX pools_name ON public.pools USING btree (org_id, name) WHERE (removed_at IS NULL);
create policy own_organization on pools using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table previews (
  org_id uuid not null,
  id uuid not null,
  sandbox_id uuid not null,
  port integer not null,
  path text not null,
  label text,
  host_form text not null,
  is_public boolean not null,
  grant_hash bytea,
  cookie_hash bytea,
  created_by json not null,
  key_id uuid not null,
  created_at timestamp with time zone not null,
  expires_at timestamp with time zone not null,
  revoked_at timestamp with time zone,
  last_used_at timestamp with time zone,
  constraint previews_pkey PRIMARY KEY (org_id, id),
  constraint previews_check CHECK (((is_public = (grant_hash IS NULL)) AND (is_public = (cookie_hash IS NULL)))),
  constraint previews_cookie_hash_check CHECK ((octet_length(cookie_hash) = 32)),
  constraint previews_cookie_hash_key UNIQUE (cookie_hash),
  constraint previews_grant_hash_check CHECK ((octet_length(grant_hash) = 32)),
  constraint previews_grant_hash_key UNIQUE (grant_hash),
  constraint previews_host_form_check CHECK ((host_form = ANY (ARRAY['outer'::text, 'sandbox'::text]))),
  constraint previews_id_key UNIQUE (id),
  constraint previews_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id),
  constraint previews_org_id_key_id_fkey FOREIGN KEY (org_id, key_id) REFERENCES api_keys(org_id, id),
  constraint previews_org_id_sandbox_id_fkey FOREIGN KEY (org_id, sandbox_id) REFERENCES sandboxes(org_id, id),
  constraint previews_port_check CHECK (((port >= 1) AND (port <= 65535)))
);
CREATE INDEX previews_end ON public.previews USING btree (LEAST(expires_at, revoked_at));
CREATE INDEX previews_of_key ON public.previews USING btree (org_id, key_id);
CREATE INDEX previews_of_sandbox ON public.previews USING btree (org_id, sandbox_id, created_at, id);
CREATE INDEX previews_open ON public.previews USING btree (org_id, sandbox_id, expires_at) WHERE (revoked_at IS NULL);
CREATE INDEX previews_public ON public.previews USING btree (sandbox_id, port, expires_at) WHERE (is_public AND (revoked_at IS NULL));
CREATE TRIGGER previews_changed AFTER DELETE OR UPDATE OF revoked_at, expires_at ON public.previews FOR EACH ROW EXECUTE FUNCTION announce_preview();
create policy own_organization on previews using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table published_ports (
  org_id uuid not null,
  sandbox_id uuid not null,
  protocol text not null,
  host_bind inet not null,
  host_port integer not null,
  guest_port integer not null,
  constraint published_ports_pkey PRIMARY KEY (org_id, sandbox_id, protocol, host_bind, host_port),
  constraint published_ports_guest_port_check CHECK (((guest_port >= 1) AND (guest_port <= 65535))),
  constraint published_ports_host UNIQUE (protocol, host_port, host_bind),
  constraint published_ports_host_port_check CHECK (((host_port >= 1) AND (host_port <= 65535))),
  constraint published_ports_org_id_sandbox_id_fkey FOREIGN KEY (org_id, sandbox_id) REFERENCES sandboxes(org_id, id),
  constraint published_ports_protocol_check CHECK ((protocol = ANY (ARRAY['tcp'::text, 'udp'::text])))
);
create policy own_organization on published_ports using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table quotas (
  org_id uuid not null,
  max_sandboxes integer,
  max_concurrent_ephemeral_running integer,
  max_concurrent_persistent_running integer,
  max_vcpus_per_sandbox integer,
  max_memory_mib_per_sandbox integer,
  max_disk_size_mib_per_sandbox integer,
  max_uptime_minutes_per_sandbox integer,
  max_total_storage_gib integer,
  included_vcpu_hours integer,
  included_memory_gib_hours integer,
  included_disk_gib_hours integer,
  included_storage_gib integer,
  hard_cap boolean not null default false,
  is_suspended boolean not null default false,
  updated_at timestamp with time zone not null,
  max_published_ports integer default 256,
  max_snapshots integer,
  max_snapshot_gib integer,
  constraint quotas_pkey PRIMARY KEY (org_id),
  constraint quotas_included_disk_gib_hours_check CHECK ((included_disk_gib_hours >= 0)),
  constraint quotas_included_memory_gib_hours_check CHECK ((included_memory_gib_hours >= 0)),
  constraint quotas_included_storage_gib_check CHECK ((included_storage_gib >= 0)),
  constraint quotas_included_vcpu_hours_check CHECK ((included_vcpu_hours >= 0)),
  constraint quotas_max_concurrent_ephemeral_running_check CHECK ((max_concurrent_ephemeral_running >= 0)),
  constraint quotas_max_concurrent_persistent_running_check CHECK ((max_concurrent_persistent_running >= 0)),
  constraint quotas_max_disk_size_mib_per_sandbox_check CHECK ((max_disk_size_mib_per_sandbox >= 0)),
  constraint quotas_max_memory_mib_per_sandbox_check CHECK ((max_memory_mib_per_sandbox >= 0)),
  constraint quotas_max_published_ports_check CHECK ((max_published_ports >= 0)),
  constraint quotas_max_sandboxes_check CHECK ((max_sandboxes >= 0)),
  constraint quotas_max_snapshot_gib_check CHECK ((max_snapshot_gib >= 0)),
  constraint quotas_max_snapshots_check CHECK ((max_snapshots >= 0)),
  constraint quotas_max_total_storage_gib_check CHECK ((max_total_storage_gib >= 0)),
  constraint quotas_max_uptime_minutes_per_sandbox_check CHECK ((max_uptime_minutes_per_sandbox >= 0)),
  constraint quotas_max_vcpus_per_sandbox_check CHECK ((max_vcpus_per_sandbox >= 0)),
  constraint quotas_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id)
);
create policy own_organization on quotas using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table registry_credentials (
  org_id uuid not null,
  id uuid not null,
  pattern text collate "C" not null,
  description text,
  username text not null,
  key_id text,
  sealed bytea,
  created_at timestamp with time zone not null,
  created_by json not null,
  updated_at timestamp with time zone not null,
  constraint registry_credentials_pkey PRIMARY KEY (org_id, id),
  constraint registry_credentials_check CHECK (((key_id IS NULL) = (sealed IS NULL))),
  constraint registry_credentials_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id)
);
CREATE UNIQUE INDEX registry_credentials_pattern ON public.registry_credentials USING btree (org_id, pattern);
create policy own_organization on registry_credentials using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table runs (
  org_id uuid not null,
  id uuid not null,
  sandbox_id uuid not null,
  vcpus integer not null,
  memory_mib integer not null,
  disk_mib integer not null,
  started_at timestamp with time zone,
  stopped_at timestamp with time zone,
  seen_at timestamp with time zone,
  end_reason text,
  max_duration_secs bigint,
  worker_id uuid,
  idle_timeout_secs bigint,
  stop_reason text,
  wait_noted boolean not null default false,
  command text,
  wanted_until timestamp with time zone,
  handed_over boolean not null default false,
  resumes boolean not null default false,
  started_by_key uuid,
  key_since timestamp with time zone,
  constraint runs_pkey PRIMARY KEY (org_id, id),
  constraint runs_check CHECK (((stopped_at IS NULL) OR (stopped_at >= started_at))),
  constraint runs_check1 CHECK (((stopped_at IS NULL) OR (end_reason IS NOT NULL))),
  constraint runs_check2 CHECK (((end_reason IS NULL) OR (started_at IS NULL) OR (stopped_at IS NOT NULL))),
  constraint runs_command_check CHECK ((command = ANY (ARRAY['stays'::text, 'ends_run'::text]))),
  constraint runs_disk_mib_check CHECK ((disk_mib >= 0)),
  constraint runs_idle_timeout_secs_check CHECK ((idle_timeout_secs >= 1)),
  constraint runs_max_duration_secs_check CHECK ((max_duration_secs >= 0)),
  constraint runs_memory_mib_check CHECK ((memory_mib >= 0)),
  constraint runs_org_id_sandbox_id_fkey FOREIGN KEY (org_id, sandbox_id) REFERENCES sandboxes(org_id, id),
  constraint runs_vcpus_check CHECK ((vcpus >= 0))
);
CREATE INDEX runs_of_key ON public.runs USING btree (org_id, started_by_key, stopped_at) WHERE (started_by_key IS NOT NULL);
CREATE INDEX runs_placed ON public.runs USING btree (worker_id) INCLUDE (org_id, vcpus, memory_mib) WHERE ((end_reason IS NULL) AND (worker_id IS NOT NULL));
CREATE INDEX runs_sandbox ON public.runs USING btree (org_id, sandbox_id);
CREATE INDEX runs_stopped ON public.runs USING btree (org_id, stopped_at) WHERE (started_at IS NOT NULL);
CREATE INDEX runs_time ON public.runs USING btree (org_id, started_at, stopped_at) WHERE (started_at IS NOT NULL);
CREATE UNIQUE INDEX runs_under_way ON public.runs USING btree (org_id, sandbox_id) WHERE (end_reason IS NULL);
CREATE INDEX runs_wait_unnoted ON public.runs USING btree (org_id, id) WHERE ((worker_id IS NULL) AND (started_at IS NULL) AND (end_reason IS NULL) AND (NOT wait_noted));
CREATE INDEX runs_waiting ON public.runs USING btree (org_id, id) WHERE ((worker_id IS NULL) AND (started_at IS NULL) AND (end_reason IS NULL));
CREATE TRIGGER count_changed_run AFTER UPDATE ON public.runs FOR EACH ROW WHEN (((((((((old.org_id IS DISTINCT FROM new.org_id) OR (old.sandbox_id IS DISTINCT FROM new.sandbox_id)) OR (old.started_at IS DISTINCT FROM new.started_at)) OR (old.stopped_at IS DISTINCT FROM new.stopped_at)) OR (old.vcpus IS DISTINCT FROM new.vcpus)) OR (old.memory_mib IS DISTINCT FROM new.memory_mib)) OR (old.disk_mib IS DISTINCT FROM new.disk_mib)) AND ((old.stopped_at IS NOT NULL) OR (new.stopped_at IS NOT NULL)))) EXECUTE FUNCTION count_changed_run();
CREATE TRIGGER count_deleted_run AFTER DELETE ON public.runs FOR EACH ROW WHEN ((old.stopped_at IS NOT NULL)) EXECUTE FUNCTION count_changed_run();
CREATE TRIGGER count_new_runs AFTER INSERT ON public.runs REFERENCING NEW TABLE AS new_runs FOR EACH STATEMENT EXECUTE FUNCTION count_new_runs();
create policy own_organization on runs using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table sandbox_counts (
  org_id uuid not null,
  id bigint not null,
  existing integer not null,
  ephemeral_running integer not null,
  persistent_running integer not null,
  constraint sandbox_counts_pkey PRIMARY KEY (org_id, id)
);
create policy own_organization on sandbox_counts using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table sandbox_labels (
  org_id uuid not null,
  key text collate "C" not null,
  value text collate "C" not null,
  created_at timestamp with time zone not null,
  sandbox_id uuid not null,
  constraint sandbox_labels_pkey PRIMARY KEY (org_id, key, value, created_at, sandbox_id),
  constraint sandbox_labels_org_id_sandbox_id_fkey FOREIGN KEY (org_id, sandbox_id) REFERENCES sandboxes(org_id, id)
);
CREATE INDEX sandbox_labels_sandbox ON public.sandbox_labels USING btree (org_id, sandbox_id);
create policy own_organization on sandbox_labels using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table sandbox_secrets (
  org_id uuid not null,
  sandbox_id uuid not null,
  name text collate "C" not null,
  key_id text not null,
  sealed bytea not null,
  constraint sandbox_secrets_pkey PRIMARY KEY (org_id, sandbox_id, name),
  constraint sandbox_secrets_org_id_sandbox_id_fkey FOREIGN KEY (org_id, sandbox_id) REFERENCES sandboxes(org_id, id)
);
CREATE INDEX sandbox_secrets_key ON public.sandbox_secrets USING btree (key_id);
create policy own_organization on sandbox_secrets using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table sandbox_sessions (
  org_id uuid not null,
  id uuid not null,
  sandbox_id uuid not null,
  actor json not null,
  details json not null,
  opened_at timestamp with time zone not null,
  seen_at timestamp with time zone not null,
  end_requested_at timestamp with time zone,
  constraint sandbox_sessions_pkey PRIMARY KEY (org_id, id),
  constraint sandbox_sessions_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id)
);
CREATE INDEX sandbox_sessions_seen ON public.sandbox_sessions USING btree (seen_at);
create policy own_organization on sandbox_sessions using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table sandbox_volumes (
  org_id uuid not null,
  volume_id uuid not null,
  sandbox_id uuid not null,
  constraint sandbox_volumes_pkey PRIMARY KEY (org_id, volume_id, sandbox_id),
  constraint sandbox_volumes_org_id_sandbox_id_fkey FOREIGN KEY (org_id, sandbox_id) REFERENCES sandboxes(org_id, id),
  constraint sandbox_volumes_org_id_volume_id_fkey FOREIGN KEY (org_id, volume_id) REFERENCES volumes(org_id, id)
);
CREATE INDEX sandbox_volumes_sandbox ON public.sandbox_volumes USING btree (org_id, sandbox_id);
create policy own_organization on sandbox_volumes using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table sandboxes (
  org_id uuid not null,
  id uuid not null,
  name text collate "C" not null,
  slug text collate "C" not null,
  status text not null,
  status_reason text,
  ephemeral boolean not null,
  created_at timestamp with time zone not null,
  last_failure_message text,
  spec json,
  run_spec jsonb,
  runtime text,
  run_id uuid,
  started_at timestamp with time zone,
  stopped_at timestamp with time zone,
  changed_at timestamp with time zone not null,
  removed_at timestamp with time zone,
  destroyed_at timestamp with time zone,
  worker_id uuid,
  disk_mib integer not null default 0,
  next_run json,
  spec_format smallint,
  stop_reason text,
  stop_message text,
  command json,
  image_digest text,
  pool_id uuid,
  warm boolean not null default false,
  source json,
  takes text[],
  disk_snapshot_id uuid,
  paused_at timestamp with time zone,
  pausing boolean not null default false,
  constraint sandboxes_pkey PRIMARY KEY (org_id, id),
  constraint sandboxes_check CHECK (((status_reason IS NULL) OR (status = 'starting'::text))),
  constraint sandboxes_check1 CHECK (((destroyed_at IS NULL) OR (removed_at IS NOT NULL))),
  constraint sandboxes_check2 CHECK (((runtime IS NULL) = (run_spec IS NULL))),
  constraint sandboxes_disk_mib_check CHECK ((disk_mib >= 0)),
  constraint sandboxes_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id),
  constraint sandboxes_org_id_pool_id_fkey FOREIGN KEY (org_id, pool_id) REFERENCES pools(org_id, id),
  constraint sandboxes_status_check CHECK ((status = ANY (ARRAY['created'::text, 'starting'::text, 'running'::text, 'stopping'::text, 'stopped'::text, 'failed'::text]))),
  constraint sandboxes_status_reason_check CHECK ((status_reason = ANY (ARRAY['scheduling'::text, 'insufficient_capacity'::text]))),
  constraint sandboxes_stop_reason_check CHECK ((stop_reason = ANY (ARRAY['requested'::text, 'idle'::text, 'max_duration'::text, 'quota'::text, 'command'::text, 'oom'::text, 'disk_full'::text, 'engine'::text, 'lost'::text, 'start_failed'::text, 'secret_violation'::text, 'paused'::text, 'budget'::text]))),
  constraint sandboxes_worker_id_fkey FOREIGN KEY (worker_id) REFERENCES workers(id)
);
CREATE INDEX sandboxes_created ON public.sandboxes USING btree (org_id, created_at DESC, id DESC) WHERE (removed_at IS NULL);
CREATE INDEX sandboxes_disk ON public.sandboxes USING btree (worker_id) INCLUDE (org_id, disk_mib) WHERE ((destroyed_at IS NULL) AND (disk_mib > 0));
CREATE INDEX sandboxes_lingering ON public.sandboxes USING btree (changed_at) WHERE (ephemeral AND (removed_at IS NULL) AND (runtime IS NOT NULL) AND (status = ANY (ARRAY['stopped'::text, 'failed'::text])));
CREATE UNIQUE INDEX sandboxes_name ON public.sandboxes USING btree (org_id, name) WHERE (removed_at IS NULL);
CREATE INDEX sandboxes_of_pool ON public.sandboxes USING btree (org_id, pool_id, status) WHERE ((pool_id IS NOT NULL) AND (removed_at IS NULL));
CREATE INDEX sandboxes_of_snapshot ON public.sandboxes USING btree (disk_snapshot_id) WHERE ((disk_snapshot_id IS NOT NULL) AND (destroyed_at IS NULL));
CREATE INDEX sandboxes_paused ON public.sandboxes USING btree (worker_id) WHERE ((paused_at IS NOT NULL) AND (destroyed_at IS NULL));
CREATE INDEX sandboxes_running ON public.sandboxes USING btree (org_id, ephemeral) WHERE ((removed_at IS NULL) AND (runtime IS NOT NULL) AND (status = ANY (ARRAY['starting'::text, 'running'::text])));
CREATE UNIQUE INDEX sandboxes_slug ON public.sandboxes USING btree (slug) WHERE (removed_at IS NULL);
CREATE INDEX sandboxes_status ON public.sandboxes USING btree (org_id, status, created_at DESC, id DESC) WHERE (removed_at IS NULL);
CREATE INDEX sandboxes_unsettled ON public.sandboxes USING btree (worker_id, changed_at) WHERE ((runtime IS NOT NULL) AND (destroyed_at IS NULL) AND ((removed_at IS NOT NULL) OR (status = ANY (ARRAY['starting'::text, 'running'::text, 'stopping'::text]))));
CREATE INDEX sandboxes_waiting ON public.sandboxes USING btree (org_id, pool_id, status) WHERE (warm AND (removed_at IS NULL));
CREATE TRIGGER change_label_periods AFTER UPDATE OF spec ON public.sandboxes FOR EACH ROW WHEN ((((old.spec -> 'labels'::text))::text IS DISTINCT FROM ((new.spec -> 'labels'::text))::text)) EXECUTE FUNCTION change_label_periods();
CREATE TRIGGER clear_spec_format BEFORE UPDATE OF spec ON public.sandboxes FOR EACH ROW EXECUTE FUNCTION clear_spec_format();
CREATE TRIGGER count_changed_sandbox AFTER UPDATE ON public.sandboxes FOR EACH ROW WHEN ((((old.removed_at IS NULL) <> (new.removed_at IS NULL)) OR (((old.removed_at IS NULL) AND counts_as_running(old.runtime, old.status, old.next_run, old.pausing)) <> ((new.removed_at IS NULL) AND counts_as_running(new.runtime, new.status, new.next_run, new.pausing))) OR (old.ephemeral <> new.ephemeral))) EXECUTE FUNCTION count_changed_sandbox();
CREATE TRIGGER count_deleted_sandbox AFTER DELETE ON public.sandboxes FOR EACH ROW EXECUTE FUNCTION count_changed_sandbox();
CREATE TRIGGER count_new_sandboxes AFTER INSERT ON public.sandboxes REFERENCING NEW TABLE AS new_sandboxes FOR EACH STATEMENT EXECUTE FUNCTION count_new_sandboxes();
CREATE TRIGGER end_pause BEFORE UPDATE ON public.sandboxes FOR EACH ROW WHEN (((old.paused_at IS NOT NULL) AND ((new.paused_at IS DISTINCT FROM old.paused_at) OR (new.started_at IS DISTINCT FROM old.started_at) OR (new.removed_at IS DISTINCT FROM old.removed_at)))) EXECUTE FUNCTION end_pause();
CREATE TRIGGER open_label_periods AFTER INSERT ON public.sandboxes REFERENCING NEW TABLE AS new_sandboxes FOR EACH STATEMENT EXECUTE FUNCTION open_label_periods();
CREATE TRIGGER release_published_ports AFTER UPDATE OF removed_at ON public.sandboxes FOR EACH ROW WHEN (((old.removed_at IS NULL) AND (new.removed_at IS NOT NULL))) EXECUTE FUNCTION release_published_ports();
CREATE TRIGGER rename_usage AFTER UPDATE OF name ON public.sandboxes FOR EACH ROW WHEN ((old.name IS DISTINCT FROM new.name)) EXECUTE FUNCTION rename_usage();
create policy own_organization on sandboxes using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table schema_migrations (
  number integer not null,
  name text not null,
  checksum text not null,
  applied_at timestamp with time zone not null default now(),
  constraint schema_migrations_pkey PRIMARY KEY (number)
);

create table snapshots (
  org_id uuid not null,
  id uuid not null,
  name text collate "C" not null,
  labels jsonb not null,
  status text not null,
  replaces boolean not null,
  record_integrity boolean not null,
  sandbox_id uuid,
  sandbox_name text,
  image text not null,
  image_digest text,
  parent_id uuid,
  parent_digest text,
  runtime text not null,
  worker_id uuid not null,
  actor json not null,
  attempts integer not null default 0,
  size_bytes bigint,
  digest text,
  content_digest text,
  error_code text,
  error_message text,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  completed_at timestamp with time zone,
  sampled_at timestamp with time zone,
  purge_at timestamp with time zone,
  removed_at timestamp with time zone,
  erased_at timestamp with time zone,
  replaced_id uuid,
  template_id uuid,
  shared_bytes bigint not null default 0,
  purpose text not null default 'snapshot'::text,
  fork_count integer,
  disk_mib integer,
  constraint snapshots_pkey PRIMARY KEY (org_id, id),
  constraint snapshots_check CHECK (((status = 'deleting'::text) = (purge_at IS NOT NULL))),
  constraint snapshots_check1 CHECK (((status <> ALL (ARRAY['ready'::text, 'deleting'::text])) OR ((size_bytes IS NOT NULL) AND (digest IS NOT NULL) AND (completed_at IS NOT NULL)))),
  constraint snapshots_check2 CHECK (((status = 'failed'::text) = (error_code IS NOT NULL))),
  constraint snapshots_check3 CHECK (((shared_bytes >= 0) AND (shared_bytes <= size_bytes))),
  constraint snapshots_disk_mib_check CHECK ((disk_mib > 0)),
  constraint snapshots_fork_count CHECK (((purpose = 'fork'::text) = (fork_count IS NOT NULL))),
  constraint snapshots_id_key UNIQUE (id),
  constraint snapshots_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id),
  constraint snapshots_purpose_check CHECK ((purpose = ANY (ARRAY['snapshot'::text, 'fork'::text]))),
  constraint snapshots_size_bytes_check CHECK ((size_bytes >= 0)),
  constraint snapshots_status_check CHECK ((status = ANY (ARRAY['queued'::text, 'in_progress'::text, 'ready'::text, 'failed'::text, 'deleting'::text])))
);
CREATE INDEX snapshots_forks ON public.snapshots USING btree (org_id, created_at DESC, id DESC) WHERE (purpose = 'fork'::text);
CREATE INDEX snapshots_kept ON public.snapshots USING btree (worker_id) WHERE (erased_at IS NULL);
CREATE INDEX snapshots_listed ON public.snapshots USING btree (org_id, created_at DESC, id DESC) WHERE (removed_at IS NULL);
CREATE UNIQUE INDEX snapshots_name ON public.snapshots USING btree (org_id, name) WHERE ((removed_at IS NULL) AND (purpose = 'snapshot'::text) AND ((status = 'ready'::text) OR ((status = ANY (ARRAY['queued'::text, 'in_progress'::text])) AND (NOT replaces))));
CREATE INDEX snapshots_of_templates ON public.snapshots USING btree (worker_id) WHERE ((template_id IS NOT NULL) AND (removed_at IS NULL));
CREATE INDEX snapshots_purge ON public.snapshots USING btree (purge_at) WHERE ((status = 'deleting'::text) AND (removed_at IS NULL));
CREATE UNIQUE INDEX snapshots_replacement ON public.snapshots USING btree (org_id, name) WHERE ((removed_at IS NULL) AND (purpose = 'snapshot'::text) AND (status = ANY (ARRAY['queued'::text, 'in_progress'::text])) AND replaces);
CREATE INDEX snapshots_waiting ON public.snapshots USING btree (worker_id, created_at) WHERE (status = ANY (ARRAY['queued'::text, 'in_progress'::text]));
create policy own_organization on snapshots using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table template_contexts (
  org_id uuid not null,
  template_id uuid not null,
  "position" integer not null,
  bytes bytea not null,
  received_at timestamp with time zone not null,
  constraint template_contexts_pkey PRIMARY KEY (org_id, template_id, "position"),
  constraint template_contexts_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id)
);
create policy own_organization on template_contexts using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table template_layers (
  org_id uuid not null,
  worker_id uuid not null,
  digest text collate "C" not null,
  snapshot_id uuid not null,
  template_id uuid not null,
  used_at timestamp with time zone not null,
  constraint template_layers_pkey PRIMARY KEY (org_id, worker_id, digest),
  constraint template_layers_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id)
);
CREATE INDEX template_layers_of_snapshot ON public.template_layers USING btree (snapshot_id);
CREATE INDEX template_layers_used ON public.template_layers USING btree (used_at);
create policy own_organization on template_layers using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table template_logs (
  org_id uuid not null,
  template_id uuid not null,
  "position" integer not null,
  at timestamp with time zone not null,
  source text not null,
  text text not null,
  constraint template_logs_pkey PRIMARY KEY (org_id, template_id, "position"),
  constraint template_logs_org_id_template_id_fkey FOREIGN KEY (org_id, template_id) REFERENCES templates(org_id, id) ON DELETE CASCADE,
  constraint template_logs_source_check CHECK ((source = ANY (ARRAY['build'::text, 'stdout'::text, 'stderr'::text])))
);
create policy own_organization on template_logs using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table templates (
  org_id uuid not null,
  id uuid not null,
  name text collate "C" not null,
  tag text collate "C" not null,
  labels jsonb not null,
  status text not null,
  dockerfile text not null,
  build_args jsonb not null,
  sandbox jsonb not null,
  uses_cache boolean not null,
  context_digest text,
  context_bytes bigint,
  timeout_secs integer not null,
  runtime text not null,
  worker_id uuid not null,
  actor json not null,
  sandbox_id uuid,
  steps integer not null,
  steps_done integer not null default 0,
  steps_cached integer not null default 0,
  snapshot_id uuid,
  config jsonb,
  image_config jsonb,
  error_code text,
  error_message text,
  error_line integer,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  started_at timestamp with time zone,
  completed_at timestamp with time zone,
  removed_at timestamp with time zone,
  key_labels jsonb not null default '{}'::jsonb,
  target text,
  constraint templates_pkey PRIMARY KEY (org_id, id),
  constraint templates_check CHECK (((status <> 'succeeded'::text) OR ((snapshot_id IS NOT NULL) AND (config IS NOT NULL) AND (image_config IS NOT NULL)))),
  constraint templates_check1 CHECK (((status = ANY (ARRAY['failed'::text, 'cancelled'::text])) = (error_code IS NOT NULL))),
  constraint templates_check2 CHECK (((status = ANY (ARRAY['succeeded'::text, 'failed'::text, 'cancelled'::text])) = (completed_at IS NOT NULL))),
  constraint templates_id_key UNIQUE (id),
  constraint templates_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id),
  constraint templates_status_check CHECK ((status = ANY (ARRAY['queued'::text, 'building'::text, 'succeeded'::text, 'failed'::text, 'cancelled'::text]))),
  constraint templates_timeout_secs_check CHECK ((timeout_secs > 0))
);
CREATE INDEX templates_ended ON public.templates USING btree (completed_at) WHERE (completed_at IS NOT NULL);
CREATE INDEX templates_left ON public.templates USING btree (worker_id) WHERE (sandbox_id IS NOT NULL);
CREATE INDEX templates_listed ON public.templates USING btree (org_id, created_at DESC, id DESC) WHERE (removed_at IS NULL);
CREATE INDEX templates_open ON public.templates USING btree (worker_id, created_at) WHERE (status = ANY (ARRAY['queued'::text, 'building'::text]));
CREATE UNIQUE INDEX templates_tag ON public.templates USING btree (org_id, name, tag) WHERE ((status = 'succeeded'::text) AND (removed_at IS NULL));
create policy own_organization on templates using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table terminal_tickets (
  org_id uuid not null,
  hash bytea not null,
  sandbox_id uuid not null,
  key_id uuid,
  secret_prefix text,
  sealed_by text not null,
  sealed bytea not null,
  expires_at timestamp with time zone not null,
  session_hash bytea,
  constraint terminal_tickets_pkey PRIMARY KEY (org_id, hash),
  constraint terminal_tickets_hash_check CHECK ((octet_length(hash) = 32)),
  constraint terminal_tickets_hash_key UNIQUE (hash),
  constraint terminal_tickets_holder CHECK ((((key_id IS NULL) = (secret_prefix IS NULL)) AND ((key_id IS NOT NULL) OR (session_hash IS NOT NULL)))),
  constraint terminal_tickets_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id),
  constraint terminal_tickets_session_hash_check CHECK ((octet_length(session_hash) = 32))
);
CREATE INDEX terminal_tickets_expiry ON public.terminal_tickets USING btree (expires_at);
create policy own_organization on terminal_tickets using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table unsealed_events (
  org_id uuid not null,
  place bigint not null,
  occurred_at timestamp with time zone not null,
  event_id uuid not null,
  queued_at timestamp with time zone not null default clock_timestamp(),
  event_type text collate "C" not null,
  category text collate "C" not null,
  constraint unsealed_events_pkey PRIMARY KEY (org_id, place),
  constraint unsealed_events_place_check CHECK ((place > 0))
);
CREATE INDEX unsealed_events_time ON public.unsealed_events USING btree (org_id, occurred_at, event_id);
CREATE TRIGGER note_event_months AFTER DELETE ON public.unsealed_events REFERENCING OLD TABLE AS sealed FOR EACH STATEMENT EXECUTE FUNCTION note_event_months();
create policy own_organization on unsealed_events using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table usage_days (
  org_id uuid not null,
  day date not null,
  name text collate "C" not null,
  sandbox_id uuid not null,
  micros numeric not null,
  vcpu_micros numeric not null,
  memory_mib_micros numeric not null,
  disk_mib_micros numeric not null,
  "json" text not null generated always as (usage_json(day, sandbox_id, vcpu_micros, memory_mib_micros, disk_mib_micros)) stored,
  constraint usage_days_pkey PRIMARY KEY (org_id, day, name, sandbox_id),
  constraint usage_days_micros_check CHECK ((micros >= (0)::numeric))
);
CREATE UNIQUE INDEX usage_days_sandbox ON public.usage_days USING btree (org_id, sandbox_id, day);
create policy own_organization on usage_days using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table usage_totals (
  org_id uuid not null,
  day date not null,
  part integer not null,
  micros numeric not null,
  vcpu_micros numeric not null,
  memory_mib_micros numeric not null,
  disk_mib_micros numeric not null,
  constraint usage_totals_pkey PRIMARY KEY (org_id, day, part)
);
create policy own_organization on usage_totals using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table volumes (
  org_id uuid not null,
  id uuid not null,
  kind text not null,
  name text collate "C",
  labels json not null default '{}'::json,
  capacity_gib integer,
  status text not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  purge_at timestamp with time zone,
  removed_at timestamp with time zone,
  used_bytes bigint,
  sampled_at timestamp with time zone,
  fork_id uuid,
  copied_from uuid,
  constraint volumes_pkey PRIMARY KEY (org_id, id),
  constraint volumes_capacity_gib_check CHECK ((capacity_gib >= 1)),
  constraint volumes_check CHECK (((kind = 'host'::text) = (name IS NULL))),
  constraint volumes_check1 CHECK (((kind = 'managed'::text) OR (status = 'active'::text))),
  constraint volumes_check2 CHECK (((status = 'deleting'::text) = (purge_at IS NOT NULL))),
  constraint volumes_copying CHECK ((((status = 'copying'::text) = (fork_id IS NOT NULL)) AND ((fork_id IS NULL) = (copied_from IS NULL)))),
  constraint volumes_kind_check CHECK ((kind = ANY (ARRAY['host'::text, 'managed'::text]))),
  constraint volumes_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id),
  constraint volumes_status_check CHECK ((status = ANY (ARRAY['active'::text, 'deleting'::text, 'copying'::text]))),
  constraint volumes_used_bytes_check CHECK ((used_bytes >= 0))
);
CREATE INDEX volumes_copying ON public.volumes USING btree (org_id, fork_id) WHERE (status = 'copying'::text);
CREATE UNIQUE INDEX volumes_host ON public.volumes USING btree (org_id) WHERE ((kind = 'host'::text) AND (removed_at IS NULL));
CREATE UNIQUE INDEX volumes_name ON public.volumes USING btree (org_id, name) WHERE ((status <> 'deleting'::text) AND (removed_at IS NULL));
CREATE INDEX volumes_purge ON public.volumes USING btree (purge_at) WHERE ((status = 'deleting'::text) AND (removed_at IS NULL));
CREATE INDEX volumes_unsampled ON public.volumes USING btree (COALESCE(sampled_at, created_at)) WHERE ((status = 'active'::text) AND (removed_at IS NULL));
create policy own_organization on volumes using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table webhook_deliveries (
  org_id uuid not null,
  webhook_id uuid not null,
  id uuid not null,
  event_id uuid not null,
  event_type text collate "C" not null,
  seq bigint,
  status text not null,
  attempts integer not null default 0,
  tried_before integer not null default 0,
  results jsonb not null default '[]'::jsonb,
  refused boolean not null default false,
  due_at timestamp with time zone,
  claim uuid,
  expires_at timestamp with time zone,
  created_at timestamp with time zone not null,
  settled_at timestamp with time zone,
  constraint webhook_deliveries_pkey PRIMARY KEY (org_id, webhook_id, id),
  constraint webhook_deliveries_check CHECK (((status = 'pending'::text) = (due_at IS NOT NULL))),
  constraint webhook_deliveries_check1 CHECK (((status = 'pending'::text) = (settled_at IS NULL))),
  constraint webhook_deliveries_check2 CHECK (((expires_at IS NOT NULL) OR ((attempts = 0) AND (claim IS NULL)))),
  constraint webhook_deliveries_org_id_webhook_id_fkey FOREIGN KEY (org_id, webhook_id) REFERENCES webhooks(org_id, id),
  constraint webhook_deliveries_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'delivered'::text, 'failed'::text])))
);
CREATE INDEX webhook_deliveries_due ON public.webhook_deliveries USING btree (org_id, webhook_id, refused, due_at) WHERE (status = 'pending'::text);
CREATE INDEX webhook_deliveries_listed ON public.webhook_deliveries USING btree (org_id, webhook_id, created_at DESC, id DESC);
CREATE INDEX webhook_deliveries_listed_status ON public.webhook_deliveries USING btree (org_id, webhook_id, status, created_at DESC, id DESC);
CREATE UNIQUE INDEX webhook_deliveries_seq ON public.webhook_deliveries USING btree (org_id, webhook_id, seq) WHERE (seq IS NOT NULL);
CREATE INDEX webhook_deliveries_settled ON public.webhook_deliveries USING btree (settled_at) WHERE (status <> 'pending'::text);
CREATE INDEX webhook_deliveries_tests ON public.webhook_deliveries USING btree (due_at) WHERE ((status = 'pending'::text) AND (seq IS NULL));
create policy own_organization on webhook_deliveries using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table webhooks (
  org_id uuid not null,
  id uuid not null,
  url text not null,
  description text,
  event_types text[] not null,
  status text not null,
  disabled_reason text,
  key_id text,
  sealed bytea,
  old_key_ids text[] not null default '{}'::text[],
  old_sealed bytea[] not null default '{}'::bytea[],
  old_until timestamp with time zone,
  "position" bigint not null,
  failures integer not null default 0,
  failing_since timestamp with time zone,
  resume_at timestamp with time zone,
  created_at timestamp with time zone not null,
  created_by json not null,
  updated_at timestamp with time zone not null,
  deleted_at timestamp with time zone,
  format text not null default 'sandkeep'::text,
  constraint webhooks_pkey PRIMARY KEY (org_id, id),
  constraint webhooks_check CHECK (((key_id IS NULL) = (sealed IS NULL))),
  constraint webhooks_check1 CHECK (((cardinality(old_key_ids) = cardinality(old_sealed)) AND ((cardinality(old_sealed) = 0) = (old_until IS NULL)))),
  constraint webhooks_check2 CHECK (((disabled_reason IS NULL) OR (status = 'disabled'::text))),
  constraint webhooks_check3 CHECK (((failures = 0) = (failing_since IS NULL))),
  constraint webhooks_check4 CHECK (((deleted_at IS NULL) OR ((status = 'disabled'::text) AND (sealed IS NULL)))),
  constraint webhooks_disabled_reason_check CHECK ((disabled_reason = ANY (ARRAY['failing'::text, 'gone'::text, 'secret_lost'::text]))),
  constraint webhooks_failures_check CHECK ((failures >= 0)),
  constraint webhooks_format_check CHECK ((format = ANY (ARRAY['sandkeep'::text, 'cloudevents'::text, 'ocsf'::text]))),
  constraint webhooks_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id),
  constraint webhooks_position_check CHECK (("position" >= 0)),
  constraint webhooks_status_check CHECK ((status = ANY (ARRAY['active'::text, 'disabled'::text])))
);
CREATE INDEX webhooks_active ON public.webhooks USING btree (org_id, id) WHERE (status = 'active'::text);
CREATE INDEX webhooks_deleted ON public.webhooks USING btree (org_id, id) WHERE (deleted_at IS NOT NULL);
CREATE INDEX webhooks_old_secrets ON public.webhooks USING btree (old_until) WHERE (old_until IS NOT NULL);
create policy own_organization on webhooks using (org_id = (NULLIF(current_setting('sandkeep.org_id'::text, true), ''::text))::uuid);

create table workers (
  id uuid not null,
  runtime text not null,
  name text not null,
  capabilities text[] not null,
  vcpus integer not null,
  memory_mib integer not null,
  disk_mib integer,
  holder text not null,
  epoch bigint not null,
  expires_at timestamp with time zone not null,
  registered_at timestamp with time zone not null,
  address text,
  address_place text,
  constraint workers_pkey PRIMARY KEY (id),
  constraint workers_disk_mib_check CHECK ((disk_mib >= 0)),
  constraint workers_memory_mib_check CHECK ((memory_mib >= 1)),
  constraint workers_vcpus_check CHECK ((vcpus >= 1))
);

CREATE OR REPLACE FUNCTION public.announce_console_sessions()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  perform pg_notify('sandkeep_console_sessions', '');
  return null;
end
$function$;

CREATE OR REPLACE FUNCTION public.announce_key()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  perform pg_notify('sandkeep_keys', coalesce(new.id, old.id)::text);
  return null;
end
$function$;

CREATE OR REPLACE FUNCTION public.announce_preview()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  perform pg_notify('sandkeep_previews', coalesce(new.sandbox_id, old.sandbox_id)::text);
  return null;
end
$function$;

CREATE OR REPLACE FUNCTION public.announce_preview_settings()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  perform pg_notify('sandkeep_previews', new.id::text);
  return null;
end
$function$;

CREATE OR REPLACE FUNCTION public.announce_tokens()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  perform pg_notify('sandkeep_keys', id::text) from api_keys
  where org_id = new.org_id and member_id = new.id and revoked_at is null;
  return null;
end
$function$;

CREATE OR REPLACE FUNCTION public.cancel_statement(pid integer)
 RETURNS boolean
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog'
AS $function$ select pg_cancel_backend(pid) $function$;

CREATE OR REPLACE FUNCTION public.change_label_periods()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
declare
  -- A clock that was set back does not reach into periods that are over.
  change_at constant timestamptz := greatest(new.changed_at,
    (select max(greatest(nullif(from_at, '-infinity'), nullif(to_at, 'infinity'))) from label_periods
     where org_id = new.org_id and sandbox_id = new.id));
begin
  delete from label_periods p
  where p.org_id = new.org_id and p.sandbox_id = new.id and p.to_at = 'infinity' and p.from_at = change_at
    and new.spec -> 'labels' ->> p.key is distinct from p.value;
  update label_periods p set to_at = change_at
  where p.org_id = new.org_id and p.sandbox_id = new.id and p.to_at = 'infinity'
    and new.spec -> 'labels' ->> p.key is distinct from p.value;
  insert into label_periods (org_id, key, value, sandbox_id, from_at, to_at)
  select new.org_id, l.key, l.value, new.id, change_at, 'infinity'
  from json_each_text(new.spec -> 'labels') l
  where not exists (
    select from label_periods p
    where p.org_id = new.org_id and p.key = l.key and p.value = l.value and p.sandbox_id = new.id
      and p.to_at = 'infinity');
  return null;
end
$function$;

CREATE OR REPLACE FUNCTION public.clear_spec_format()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  new.spec_format = null;
  return new;
end
$function$;

CREATE OR REPLACE FUNCTION public.count_changed_run()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
declare
  own_part int := usage_part();
begin
  perform from sandboxes where org_id = old.org_id and id = old.sandbox_id for no key update;
  if old.stopped_at is not null then
    update usage_days u
    set micros = u.micros - d.micros,
      vcpu_micros = u.vcpu_micros - d.micros::numeric * old.vcpus,
      memory_mib_micros = u.memory_mib_micros - d.micros::numeric * old.memory_mib,
      disk_mib_micros = u.disk_mib_micros - d.micros::numeric * old.disk_mib
    from days_of(old.started_at, old.stopped_at) d
    where u.org_id = old.org_id and u.sandbox_id = old.sandbox_id and u.day = d.day;
    delete from usage_days u where u.org_id = old.org_id and u.sandbox_id = old.sandbox_id and u.micros = 0;
  end if;
  if tg_op = 'UPDATE' then
    insert into usage_days as u
      (org_id, day, name, sandbox_id, micros, vcpu_micros, memory_mib_micros, disk_mib_micros)
    select new.org_id, d.day, s.name, new.sandbox_id, d.micros, d.micros::numeric * new.vcpus,
      d.micros::numeric * new.memory_mib, d.micros::numeric * new.disk_mib
    from sandboxes s
    cross join lateral days_of(new.started_at, new.stopped_at) d
    where s.org_id = new.org_id and s.id = new.sandbox_id and new.stopped_at is not null
    on conflict (org_id, sandbox_id, day) do update
      set micros = u.micros + excluded.micros,
        vcpu_micros = u.vcpu_micros + excluded.vcpu_micros,
        memory_mib_micros = u.memory_mib_micros + excluded.memory_mib_micros,
        disk_mib_micros = u.disk_mib_micros + excluded.disk_mib_micros;
  end if;
  -- What it was is taken back and what it is added. A run that is open, or was, has no days here; nor has what a deleted one is.
  insert into usage_totals as t (org_id, day, part, micros, vcpu_micros, memory_mib_micros, disk_mib_micros)
  select r.org_id, d.day, own_part, sum(r.sign * d.micros), sum(r.sign * d.micros::numeric * r.vcpus),
    sum(r.sign * d.micros::numeric * r.memory_mib), sum(r.sign * d.micros::numeric * r.disk_mib)
  from (values
    (-1, old.org_id, old.started_at, old.stopped_at, old.vcpus, old.memory_mib, old.disk_mib),
    (1, new.org_id, new.started_at, new.stopped_at, new.vcpus, new.memory_mib, new.disk_mib)
  ) r (sign, org_id, started_at, stopped_at, vcpus, memory_mib, disk_mib)
  cross join lateral days_of(r.started_at, r.stopped_at) d
  group by r.org_id, d.day
  on conflict (org_id, day, part) do update
    set micros = t.micros + excluded.micros,
      vcpu_micros = t.vcpu_micros + excluded.vcpu_micros,
      memory_mib_micros = t.memory_mib_micros + excluded.memory_mib_micros,
      disk_mib_micros = t.disk_mib_micros + excluded.disk_mib_micros;
  return null;
end
$function$;

CREATE OR REPLACE FUNCTION public.count_changed_sandbox()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
declare
  existed constant boolean := old.removed_at is null;
  ran constant boolean := existed and counts_as_running(old.runtime, old.status, old.next_run, old.pausing);
  exists_now constant boolean := tg_op = 'UPDATE' and new.removed_at is null;
  runs constant boolean := exists_now and counts_as_running(new.runtime, new.status, new.next_run, new.pausing);
  is_ephemeral boolean := old.ephemeral;
begin
  if tg_op = 'UPDATE' then
    is_ephemeral := new.ephemeral;
  end if;
  insert into sandbox_counts (org_id, existing, ephemeral_running, persistent_running)
  values (old.org_id, exists_now::int - existed::int,
    (runs and is_ephemeral)::int - (ran and old.ephemeral)::int,
    (runs and not is_ephemeral)::int - (ran and not old.ephemeral)::int);
  return null;
end
$function$;

CREATE OR REPLACE FUNCTION public.count_new_runs()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
declare
  own_part int;
begin
  -- Most runs are inserted before they start.
  if not exists (select from new_runs where stopped_at is not null) then
    return null;
  end if;
  -- Nobody renames them meanwhile, and nobody else counts for them: two that touch days of one in turn would wait for each other.
  perform from sandboxes s
  where exists (
    select from new_runs r where r.org_id = s.org_id and r.sandbox_id = s.id and r.stopped_at is not null)
  order by s.org_id, s.id
  for no key update;
  insert into usage_days as u
    (org_id, day, name, sandbox_id, micros, vcpu_micros, memory_mib_micros, disk_mib_micros)
  select r.org_id, d.day, s.name, r.sandbox_id, sum(d.micros), sum(d.micros::numeric * r.vcpus),
    sum(d.micros::numeric * r.memory_mib), sum(d.micros::numeric * r.disk_mib)
  from new_runs r
  join sandboxes s on s.org_id = r.org_id and s.id = r.sandbox_id
  cross join lateral days_of(r.started_at, r.stopped_at) d
  where r.stopped_at is not null
  group by r.org_id, d.day, s.name, r.sandbox_id
  order by r.org_id, d.day, s.name, r.sandbox_id
  on conflict (org_id, sandbox_id, day) do update
    set micros = u.micros + excluded.micros,
      vcpu_micros = u.vcpu_micros + excluded.vcpu_micros,
      memory_mib_micros = u.memory_mib_micros + excluded.memory_mib_micros,
      disk_mib_micros = u.disk_mib_micros + excluded.disk_mib_micros;
  own_part := usage_part();
  insert into usage_totals as t (org_id, day, part, micros, vcpu_micros, memory_mib_micros, disk_mib_micros)
  select r.org_id, d.day, own_part, sum(d.micros), sum(d.micros::numeric * r.vcpus),
    sum(d.micros::numeric * r.memory_mib), sum(d.micros::numeric * r.disk_mib)
  from new_runs r
  cross join lateral days_of(r.started_at, r.stopped_at) d
  where r.stopped_at is not null
  group by r.org_id, d.day
  on conflict (org_id, day, part) do update
    set micros = t.micros + excluded.micros,
      vcpu_micros = t.vcpu_micros + excluded.vcpu_micros,
      memory_mib_micros = t.memory_mib_micros + excluded.memory_mib_micros,
      disk_mib_micros = t.disk_mib_micros + excluded.disk_mib_micros;
  return null;
end
$function$;

CREATE OR REPLACE FUNCTION public.count_new_sandboxes()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  insert into sandbox_counts (org_id, existing, ephemeral_running, persistent_running)
  select org_id, count(*), count(*) filter (where runs and ephemeral), count(*) filter (where runs and not ephemeral)
  from (
    select org_id, ephemeral, counts_as_running(runtime, status, next_run, pausing) as runs
    from new_sandboxes where removed_at is null) existing
  group by org_id;
  return null;
end
$function$;

CREATE OR REPLACE FUNCTION public.counts_as_running(runtime text, status text, next_run json, pausing boolean)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
  select runtime is not null
    and (status in ('starting', 'running') or status = 'stopping' and (next_run is not null or pausing))
$function$;

CREATE OR REPLACE FUNCTION public.days_of(from_at timestamp with time zone, to_at timestamp with time zone)
 RETURNS TABLE(day date, micros bigint)
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
  select date '1970-01-01' + n,
    least((extract(epoch from to_at) * 1000000)::bigint, (n + 1) * 86400000000)
      - greatest((extract(epoch from from_at) * 1000000)::bigint, n * 86400000000)
  from generate_series(
    ((from_at at time zone 'UTC')::date - date '1970-01-01'),
    (((to_at - interval '1 microsecond') at time zone 'UTC')::date - date '1970-01-01')) as n
  where from_at < to_at
$function$;

CREATE OR REPLACE FUNCTION public.end_pause()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
declare
  disk integer;
begin
  if new.paused_at is not distinct from old.paused_at then
    new.paused_at := null;
  end if;
  update pauses p set to_at = greatest(p.from_at, case
      when new.started_at is distinct from old.started_at then new.started_at
      when new.removed_at is distinct from old.removed_at then new.removed_at
      else new.changed_at end)
    where p.org_id = old.org_id and p.sandbox_id = old.id and p.to_at is null
    returning p.disk_mib into disk;
  new.disk_mib := least(new.disk_mib, coalesce(disk, new.disk_mib));
  return new;
end
$function$;

CREATE OR REPLACE FUNCTION public.end_tokens()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  if tg_op = 'DELETE' or (old.person_id is not null and new.person_id is distinct from old.person_id) then
    update api_keys set revoked_at = now()
    where org_id = old.org_id and member_id = old.id and revoked_at is null;
  end if;
  return null;
end
$function$;

CREATE OR REPLACE FUNCTION public.end_tokens_elsewhere()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog'
AS $function$
begin
  update public.api_keys set revoked_at = new.revoked_at
  where of_token_id = new.id and revoked_at is null;
  return null;
end
$function$;

CREATE OR REPLACE FUNCTION public.is_worker_live(worker uuid, at timestamp with time zone)
 RETURNS boolean
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog'
AS $function$
  select exists (select from public.workers where id = worker and expires_at > at)
$function$;

CREATE OR REPLACE FUNCTION public.make_event_partition(of_month timestamp with time zone)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
declare
  from_at constant timestamptz := date_trunc('month', of_month at time zone 'UTC') at time zone 'UTC';
  to_at constant timestamptz := (date_trunc('month', of_month at time zone 'UTC') + interval '1 month') at time zone 'UTC';
  partition constant text := 'events_' || to_char(from_at at time zone 'UTC', 'YYYY_MM');
begin
  if to_regclass(partition) is not null then
    return false;
  end if;
  perform pg_advisory_xact_lock(hashtextextended('event partitions', 0));
  if to_regclass(partition) is not null
    or exists (select from events_other where occurred_at >= from_at and occurred_at < to_at) then
    return false;
  end if;
  if to_at > now() then
    -- Whoever writes an event of this month meanwhile waits here. Before events_other he would wait to be refused by it.
    lock table only events in share row exclusive mode;
  end if;
  execute format('create table %I (like events including all)', partition);
  execute format(
    'create trigger never_emptied before truncate on %I execute function refuse_event_change()', partition);
  -- Nobody reads or writes events_other until the transaction ends.
  execute format('alter table events attach partition %I for values from (%L) to (%L)', partition, from_at, to_at);
  return true;
exception
  -- Somebody wrote one to events_other meanwhile.
  when check_violation then
    return false;
end
$function$;

CREATE OR REPLACE FUNCTION public.note_event_months()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  insert into event_months (org_id, event_type, category, month)
  select distinct org_id, event_type, category, date_trunc('month', occurred_at, 'UTC') from sealed
  on conflict do nothing;
  return null;
end
$function$;

CREATE OR REPLACE FUNCTION public.open_label_periods()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  insert into label_periods (org_id, key, value, sandbox_id, from_at, to_at)
  select s.org_id, l.key, l.value, s.id, '-infinity', 'infinity'
  from new_sandboxes s
  cross join lateral json_each_text(s.spec -> 'labels') l;
  return null;
end
$function$;

CREATE OR REPLACE FUNCTION public.queue_events()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  -- History comes in the order of its times.
  insert into unsealed_events (org_id, occurred_at, event_id, event_type, category)
  select org_id, occurred_at, id, event_type, category from new_events order by org_id, occurred_at, id;
  return null;
end
$function$;

CREATE OR REPLACE FUNCTION public.refuse_event_change()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  if tg_op = 'DELETE' and current_setting('sandkeep.event_retention', true) = 'on' then
    return old;
  end if;
  raise exception '% of % is refused: audit events are only ever added', lower(tg_op), tg_table_name
    using errcode = 'restrict_violation';
end
$function$;

CREATE OR REPLACE FUNCTION public.release_published_ports()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  delete from published_ports where org_id = new.org_id and sandbox_id = new.id;
  return null;
end
$function$;

CREATE OR REPLACE FUNCTION public.rename_usage()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  update usage_days set name = new.name where org_id = new.org_id and sandbox_id = new.id;
  return null;
end
$function$;

CREATE OR REPLACE FUNCTION public.taken_host_ports(of_protocol text, at_address inet)
 RETURNS integer[]
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog'
AS $function$
  select coalesce(array_agg(distinct host_port), '{}') from public.published_ports
  where protocol = of_protocol and family(host_bind) = family(at_address)
    and (host_bind = at_address or at_address in ('0.0.0.0', '::') or host_bind in ('0.0.0.0', '::'))
$function$;

CREATE OR REPLACE FUNCTION public.usage_json(day date, sandbox_id uuid, vcpu_micros numeric, memory_mib_micros numeric, disk_mib_micros numeric)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE STRICT
 SET "DateStyle" TO 'ISO'
 SET extra_float_digits TO '1'
AS $function$
  select '{"day":"' || day || 'T00:00:00Z","sandbox_id":"' || sandbox_id
    || '","vcpu_seconds":' || (vcpu_micros * 0.000001)::float8
    || ',"mem_mib_seconds":' || (memory_mib_micros * 0.000001)::float8
    || ',"disk_mib_seconds":' || (disk_mib_micros * 0.000001)::float8 || '}'
$function$;

CREATE OR REPLACE FUNCTION public.usage_part()
 RETURNS integer
 LANGUAGE plpgsql
AS $function$
declare
  said text := current_setting('sandkeep.usage_part', true);
  -- Of advisory locks: "usag".
  locks constant int := 1970496871;
  parts constant int := 32;
begin
  if said <> '' then
    return said;
  end if;
  for part in 0 .. parts - 1 loop
    if pg_try_advisory_xact_lock(locks, part) then
      return part;
    end if;
  end loop;
  perform pg_advisory_xact_lock(locks, pg_backend_pid() % parts);
  return pg_backend_pid() % parts;
end
$function$;

CREATE OR REPLACE FUNCTION public.worker_capacity(worker uuid, OUT vcpus integer, OUT memory_mib integer, OUT disk_mib integer)
 RETURNS record
 LANGUAGE sql
 STABLE SECURITY DEFINER
 SET search_path TO 'pg_catalog'
AS $function$
  select w.vcpus, w.memory_mib, w.disk_mib from public.workers w where w.id = worker
$function$;
