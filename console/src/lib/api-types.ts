// Made from openapi.json by "npm run generate".

export type Action = 'allow' | 'deny';

export type ApiKeyResponse = {
  id: string;
  name: string;
  prefix: string;
  scopes: KeyScope[];
  labels: Record<string, string>;
  cidrs: string[];
  created_at: string;
  created_by: EventActor | null;
  expires_at: string | null;
  last_used_at: string | null;
  rotated_at: string | null;
  previous_secret_until: string | null;
  revoked_at: string | null;
};

export type ApiKeyWithSecret = {
  id: string;
  name: string;
  prefix: string;
  scopes: KeyScope[];
  labels: Record<string, string>;
  cidrs: string[];
  created_at: string;
  created_by: EventActor | null;
  expires_at: string | null;
  last_used_at: string | null;
  rotated_at: string | null;
  previous_secret_until: string | null;
  revoked_at: string | null;
  key: string | null;
};

export type BudgetResponse = {
  id: string;
  org_id: string;
  name: string;
  scope: BudgetScope;
  measure: 'cost' | 'vcpu_hours' | 'memory_gib_hours' | 'disk_gib_hours' | 'sandbox_hours';
  limit: string;
  currency: string | null;
  thresholds: number[];
  action: 'warn' | 'refuse_starts' | 'stop';
  period_start: string;
  period_end: string;
  used: string | null;
  forecast: string | null;
  used_percent: number | null;
  reached: number[];
  state: 'ok' | 'warning' | 'exhausted' | 'unpriced';
  created_at: string;
  created_by: EventActor;
  updated_at: string;
};

export type BudgetScope = BudgetScopeOrganization | BudgetScopeLabel | BudgetScopeApiKey;

export type BudgetScopeApiKey = { type: 'api_key'; api_key_id: string };

export type BudgetScopeLabel = { type: 'label'; key: string; value: string };

export type BudgetScopeOrganization = { type: 'organization' };

export type CertCacheConfig = { capacity?: number; validity_hours?: number };

export type CloudDiskImageFormat = 'qcow2' | 'raw' | 'vmdk';

export type CloudHostPattern = CloudHostPatternExact | CloudHostPatternWildcard | CloudHostPatternAny;

export type CloudHostPatternAny = { type: 'any' };

export type CloudHostPatternExact = { type: 'exact'; value: string };

export type CloudHostPatternWildcard = { type: 'wildcard'; value: string };

export type CloudNetworkSpec = {
  enabled?: boolean;
  ports?: PortToPublish[] | null;
  trust_host_cas?: boolean;
  dns?: DnsConfig | null;
  interface?: InterfaceOverrides | null;
  max_connections?: number | null;
  max_udp_connections?: number | null;
  record?: boolean;
  policy?: NetworkPolicy | null;
  secrets?: CloudSecretsConfig | null;
  tls?: TlsConfig | null;
  strict?: boolean;
};

export type CloudPatch =
  | CloudPatchText
  | CloudPatchFile
  | CloudPatchCopyFile
  | CloudPatchCopyDir
  | CloudPatchSymlink
  | CloudPatchMkdir
  | CloudPatchRemove
  | CloudPatchAppend;

export type CloudPatchAppend = { type: 'append'; path: string; content: string };

export type CloudPatchCopyDir = { type: 'copy_dir'; src: string; dst: string; replace: boolean };

export type CloudPatchCopyFile = {
  type: 'copy_file';
  src: string;
  dst: string;
  mode?: number | null;
  replace: boolean;
};

export type CloudPatchFile = {
  type: 'file';
  path: string;
  content: number[] | string;
  mode?: number | null;
  replace: boolean;
};

export type CloudPatchMkdir = { type: 'mkdir'; path: string; mode?: number | null };

export type CloudPatchRemove = { type: 'remove'; path: string };

export type CloudPatchSymlink = { type: 'symlink'; target: string; link: string; replace: boolean };

export type CloudPatchText = {
  type: 'text';
  path: string;
  content: string;
  mode?: number | null;
  replace: boolean;
};

export type CloudPullPolicy = 'if_missing' | 'always' | 'never';

export type CloudRlimit = { resource: CloudRlimitResource; soft: number; hard: number };

export type CloudRlimitResource =
  | 'cpu'
  | 'fsize'
  | 'data'
  | 'stack'
  | 'core'
  | 'rss'
  | 'nproc'
  | 'nofile'
  | 'memlock'
  | 'as'
  | 'locks'
  | 'sigpending'
  | 'msgqueue'
  | 'nice'
  | 'rtprio'
  | 'rttime';

export type CloudRootfsSource =
  CloudRootfsSourceOci | CloudRootfsSourceDiskSnapshot | CloudRootfsSourceTemplate;

export type CloudRootfsSourceDiskSnapshot = { type: 'disk_snapshot'; id: string };

export type CloudRootfsSourceOci = { type: 'oci'; reference: string };

export type CloudRootfsSourceTemplate = { type: 'template'; name: string; tag?: string };

export type CloudSandboxResources = { vcpus?: number; memory_mib?: number; disk_size_mib?: number | null };

export type CloudSandboxRuntimeOptions = {
  cmd?: string[] | null;
  entrypoint?: string[] | null;
  user?: string | null;
  workdir?: string | null;
  shell?: string | null;
  scripts?: Record<string, string>;
  log_level?: SandboxLogLevel | null;
  hostname?: string | null;
  metrics_sample_interval_ms?: number | null;
  disable_metrics_sample?: boolean;
};

export type CloudSecretEntry = {
  env_var: string;
  placeholder?: string;
  value?: string;
  source?: CloudSecretSource | null;
  allowed_hosts?: CloudHostPattern[];
  injection?: SecretInjection;
  substitution?: SecretSubstitution | null;
  passthrough_hosts?: CloudHostPattern[] | null;
  violation_action?: CloudViolationAction | null;
  on_violation?: CloudViolationAction | null;
  require_tls_identity?: boolean;
};

export type CloudSecretSource = CloudSecretSourceEnv | CloudSecretSourceStore;

export type CloudSecretSourceEnv = { type: 'env'; var: string };

export type CloudSecretSourceStore = { type: 'store'; reference: string };

export type CloudSecretsConfig = {
  entries?: CloudSecretEntry[];
  on_violation?: CloudViolationAction | null;
  passthrough_hosts?: CloudHostPattern[] | null;
  violation_action?: CloudViolationAction | null;
};

export type CloudViolationAction = CloudViolationActionBlock | CloudViolationActionPassthrough;

export type CloudViolationActionBlock = { type: 'block' | 'block_and_log' | 'block_and_terminate' };

export type CloudViolationActionPassthrough = { type: 'passthrough'; hosts: CloudHostPattern[] };

export type CloudVolumeMount =
  CloudVolumeMountBind | CloudVolumeMountNamed | CloudVolumeMountTmpfs | CloudVolumeMountDiskImage;

export type CloudVolumeMountBind = {
  type: 'bind';
  host: string;
  guest: string;
  options?: MountOptions;
  stat_virtualization?: StatVirtualization;
  host_permissions?: HostPermissions;
  quota_mib?: number | null;
};

export type CloudVolumeMountDiskImage = {
  type: 'disk_image';
  host: string;
  guest: string;
  format: CloudDiskImageFormat;
  fstype?: string | null;
  options?: MountOptions;
};

export type CloudVolumeMountNamed = {
  type: 'named';
  name: string;
  guest: string;
  options?: MountOptions;
  stat_virtualization?: StatVirtualization;
  host_permissions?: HostPermissions;
};

export type CloudVolumeMountTmpfs = {
  type: 'tmpfs';
  guest: string;
  options?: MountOptions;
  size_mib?: number | null;
};

export type CreateApiKeyRequest = {
  name: string;
  scopes: KeyScope[];
  labels?: Record<string, string>;
  cidrs?: string[];
  expires_at?: string | null;
};

export type CreateBudgetRequest = {
  name: string;
  scope: BudgetScope;
  measure: 'cost' | 'vcpu_hours' | 'memory_gib_hours' | 'disk_gib_hours' | 'sandbox_hours';
  limit: string;
  thresholds?: number[];
  action?: 'warn' | 'refuse_starts' | 'stop';
};

export type CreateInvitationRequest = {
  email: string;
  role: OrgRole;
  labels?: Record<string, string>;
  expires_in_hours?: number;
};

export type CreatePersonalTokenRequest = { name: string; scopes?: KeyScope[]; expires_in_days?: number };

export type CreatePreviewRequest = {
  port: number;
  path?: string;
  ttl_secs?: number;
  label?: string | null;
  public?: boolean;
  host?: PreviewHostForm;
};

export type CreateRegistryCredentialRequest = {
  pattern: string;
  username: string;
  password: string;
  description?: string | null;
};

export type CreateSandboxRequest = {
  name: string;
  slug?: string | null;
  resources?: CloudSandboxResources;
  runtime?: CloudSandboxRuntimeOptions;
  env?: EnvVarRequest[] | Record<string, string>;
  labels?: Record<string, string>;
  rlimits?: CloudRlimit[];
  lifecycle?: SandboxPolicy;
  mounts?: CloudVolumeMount[];
  network?: CloudNetworkSpec;
  image?: CloudRootfsSource;
  patches?: CloudPatch[];
  init?: HandoffInit | null;
  pull_policy?: CloudPullPolicy;
  security_profile?: SecurityProfile;
  registry?: RegistrySelection | null;
  source?: 'oci' | 'disk_snapshot';
  reference?: string;
  disk_snapshot_ref?: { type: 'managed'; id: string };
};

export type CreateSnapshotRequest = {
  kind: 'disk';
  sandbox_id: string;
  name: string;
  dest_dir?: string | null;
  labels?: Record<string, string>;
  force?: boolean;
  record_integrity?: boolean;
};

export type CreateVolumeRequest = {
  name: string;
  labels?: Record<string, string>;
  capacity_gib?: number | null;
  storage?: VolumeType | null;
};

export type CreateWebhookRequest = {
  url: string;
  description?: string | null;
  event_types?: string[];
  format?: 'sandkeep' | 'cloudevents' | 'ocsf';
};

export type DeniedConnection = {
  kind: 'name' | 'connection' | 'request' | 'secret';
  protocol: 'dns' | 'tcp' | 'udp' | 'http' | 'tls';
  name: string | null;
  address: string | null;
  port: number | null;
  rule: string | null;
  reason: string;
  secret: string | null;
  count: number;
  first_at: string;
  last_at: string;
};

export type Destination =
  'any' | DestinationByCidr | DestinationByDomain | DestinationByDomainSuffix | DestinationByGroup;

export type DestinationByCidr = { cidr: string };

export type DestinationByDomain = { domain: string };

export type DestinationByDomainSuffix = { domain_suffix: string };

export type DestinationByGroup = { group: DestinationGroup };

export type DestinationGroup =
  'public' | 'loopback' | 'private' | 'link_local' | 'metadata' | 'multicast' | 'host';

export type Direction = 'egress' | 'ingress' | 'any';

export type DiskImageFormat = 'Qcow2' | 'Raw' | 'Vmdk';

export type DnsConfig = { nameservers?: string[]; query_timeout_ms?: number; rebind_protection?: boolean };

export type EnvVar = { key: string; value: string; secret?: boolean };

export type EnvVarRequest = { key: string; value: string; secret?: boolean };

export type ErrorResponse = {
  error: { code: string; message: string; details?: Record<string, unknown> | null };
};

export type EventActor = EventActorUser | EventActorApiKey | EventActorSystem | EventActorSshKey;

export type EventActorApiKey = { kind: 'api_key'; api_key_id: string; name: string };

export type EventActorSshKey = {
  kind: 'ssh_key';
  key_id: string;
  fingerprint: string;
  label?: string | null;
};

export type EventActorSystem = { kind: 'system'; code: string; label: string };

export type EventActorUser = { kind: 'user'; user_id: string; label: string; redacted_email: string };

export type EventResponse = {
  id: string;
  org_id: string;
  timestamp: string;
  category: string;
  event_type: string;
  actor: EventActor;
  payload: unknown;
};

export type ExecRequest = {
  cmd: string;
  args?: string[];
  env?: EnvVarRequest[] | Record<string, string>;
  cwd?: string | null;
  user?: string | null;
  stdin?: string;
  stdin_base64?: string;
  timeout_secs?: number;
  max_output_bytes?: number;
  mask_secrets?: boolean;
  output_encoding?: 'text' | 'base64';
};

export type ExecResult = {
  exit_code: number;
  stdout: string;
  stderr: string;
  truncated: boolean;
  timed_out: boolean;
  oom_killed?: boolean | null;
  duration_ms: number;
};

export type ForkOperation = {
  id: string;
  status: ForkOperationStatus;
  sandbox_id: string;
  sandbox_name: string;
  count: number;
  size_bytes: number | null;
  error: SnapshotError | null;
  created_at: string;
  updated_at: string;
  completed_at: string | null;
  sandboxes: ForkedSandbox[];
};

export type ForkOperationStatus = 'queued' | 'in_progress' | 'succeeded' | 'failed';

export type ForkRequest = {
  count: number;
  names?: string[];
  name_prefix?: string;
  labels?: Record<string, string>;
  start?: boolean;
  volumes?: 'share' | 'copy';
  secrets?: 'none' | 'inherit';
  ports?: 'none' | 'inherit';
};

export type ForkSummary = {
  id: string;
  status: ForkOperationStatus;
  sandbox_id: string;
  sandbox_name: string;
  count: number;
  size_bytes: number | null;
  error: SnapshotError | null;
  created_at: string;
  updated_at: string;
  completed_at: string | null;
};

export type ForkedSandbox = { id: string; name: string; slug: string; status: SandboxStatus };

export type HandoffInit = { cmd: string; args?: string[]; env?: string[][] };

export type HostPermissions = 'private' | 'mirror';

export type InterceptCaConfig = { cert_path?: string | null; key_path?: string | null };

export type InterfaceOverrides = {
  ipv4_address?: string | null;
  ipv4_pool?: string | null;
  ipv6_address?: string | null;
  ipv6_pool?: string | null;
  mac?: number[] | null;
  mtu?: number | null;
};

export type InvitationResponse = {
  id: string;
  email: string;
  role: OrgRole;
  labels: Record<string, string>;
  created_at: string;
  created_by: EventActor;
  expires_at: string;
};

export type InvitationWithLink = {
  id: string;
  email: string;
  role: OrgRole;
  labels: Record<string, string>;
  created_at: string;
  created_by: EventActor;
  expires_at: string;
  link: string;
};

export type KeyScope =
  | 'sandboxes:read'
  | 'sandboxes:write'
  | 'sandboxes:exec'
  | 'volumes:read'
  | 'volumes:write'
  | 'events:read'
  | 'billing:read'
  | 'keys:read'
  | 'keys:write'
  | 'org:admin';

export type LabelBreakdown = {
  key?: string;
  keys: string[];
  currency: string | null;
  minor_unit_digits: number | null;
  rows: LabelDailyUsage[];
  unlabelled: UnlabelledDailyUsage[];
};

export type LabelDailyUsage = {
  day: string;
  value?: string;
  values: (string | null)[];
  vcpu_seconds: number;
  mem_mib_seconds: number;
  disk_mib_seconds: number;
  cost: string | null;
};

export type McpAnswer = {
  jsonrpc: '2.0';
  id: string | number | null;
  result?: Record<string, unknown>;
  error?: { code: number; message: string; data?: unknown };
};

export type McpMessage = {
  jsonrpc: '2.0';
  id?: string | number;
  method: string;
  params?: Record<string, unknown>;
};

export type MessageResponse = { message: string };

export type ModificationPolicy = 'no_restart' | 'next_start' | 'restart';

export type ModificationRemark = { field: string; message: string };

export type MountOptions = { nodev?: boolean; noexec?: boolean; nosuid?: boolean; readonly?: boolean };

export type NetworkPolicy = { default_egress?: Action; default_ingress?: Action; rules?: Rule[] };

export type OrgMemberResponse = {
  id: string;
  user_id: string;
  email: string;
  role: OrgRole;
  labels: Record<string, string>;
  display_name?: string | null;
  avatar_url?: string | null;
  joined_at: string;
};

export type OrgRole = 'owner' | 'admin' | 'developer' | 'member' | 'viewer' | 'finance' | 'auditor';

export type OrgWithRole = {
  id: string;
  name: string;
  slug: string;
  mfa_required: boolean;
  role: OrgRole;
  runtime: string;
  created_at: string;
  updated_at: string;
};

export type PaginatedApiKeyResponse = {
  data: ApiKeyResponse[];
  has_more: boolean;
  next_cursor?: string | null;
};

export type PaginatedBudgetResponse = {
  data: BudgetResponse[];
  has_more: boolean;
  next_cursor?: string | null;
};

export type PaginatedDeniedConnection = {
  data: DeniedConnection[];
  has_more: boolean;
  next_cursor?: string | null;
};

export type PaginatedEventResponse = {
  data: EventResponse[];
  has_more: boolean;
  next_cursor?: string | null;
};

export type PaginatedFork = { data: ForkSummary[]; has_more: boolean; next_cursor?: string | null };

export type PaginatedInvitationResponse = {
  data: InvitationResponse[];
  has_more: boolean;
  next_cursor?: string | null;
};

export type PaginatedMemberResponse = {
  data: OrgMemberResponse[];
  has_more: boolean;
  next_cursor?: string | null;
};

export type PaginatedPersonalTokenResponse = {
  data: PersonalTokenResponse[];
  has_more: boolean;
  next_cursor?: string | null;
};

export type PaginatedPoolResponse = { data: PoolResponse[]; has_more: boolean; next_cursor?: string | null };

export type PaginatedPreviewResponse = {
  data: PreviewResponse[];
  has_more: boolean;
  next_cursor?: string | null;
};

export type PaginatedRegistryCredentialResponse = {
  data: RegistryCredentialResponse[];
  has_more: boolean;
  next_cursor?: string | null;
};

export type PaginatedSandboxResponse = {
  data: SandboxResponse[];
  has_more: boolean;
  next_cursor?: string | null;
};

export type PaginatedSandboxSession = {
  data: SandboxSession[];
  has_more: boolean;
  next_cursor?: string | null;
};

export type PaginatedSnapshot = { data: SnapshotResponse[]; has_more: boolean; next_cursor?: string | null };

export type PaginatedSnapshotCandidate = {
  data: SnapshotCandidate[];
  has_more: boolean;
  next_cursor?: string | null;
};

export type PaginatedSnapshotOperation = {
  data: SnapshotOperation[];
  has_more: boolean;
  next_cursor?: string | null;
};

export type PaginatedTemplate = { data: TemplateResponse[]; has_more: boolean; next_cursor?: string | null };

export type PaginatedWebhookDelivery = {
  data: WebhookDelivery[];
  has_more: boolean;
  next_cursor?: string | null;
};

export type PaginatedWebhookResponse = {
  data: WebhookResponse[];
  has_more: boolean;
  next_cursor?: string | null;
};

export type PersonalTokenResponse = {
  id: string;
  name: string;
  prefix: string;
  scopes: KeyScope[];
  member_id: string;
  email: string;
  created_at: string;
  expires_at: string;
  last_used_at: string | null;
};

export type PersonalTokenWithSecret = {
  id: string;
  name: string;
  prefix: string;
  scopes: KeyScope[];
  member_id: string;
  email: string;
  created_at: string;
  expires_at: string;
  last_used_at: string | null;
  token: string;
};

export type PoolResponse = {
  id: string;
  name: string;
  image: string;
  pull_policy?: CloudPullPolicy;
  image_digest: string | null;
  resources: CloudSandboxResources;
  network: SandboxNetworkResponse;
  size: number;
  most: number | null;
  ready: number;
  starting: number;
  given: number;
  last_failure_message: string | null;
  created_at: string;
  updated_at: string;
};

export type PoolSandbox = {
  id: string;
  name: string;
  status: SandboxStatus;
  started_at: string | null;
  image_digest: string | null;
};

export type PoolWithSandboxes = {
  id: string;
  name: string;
  image: string;
  pull_policy?: CloudPullPolicy;
  image_digest: string | null;
  resources: CloudSandboxResources;
  network: SandboxNetworkResponse;
  size: number;
  most: number | null;
  ready: number;
  starting: number;
  given: number;
  last_failure_message: string | null;
  created_at: string;
  updated_at: string;
  sandboxes: PoolSandbox[];
};

export type PortProtocol = 'tcp' | 'udp';

export type PortRange = { start: number; end: number };

export type PortToPublish = {
  guest_port: number;
  host_port?: number;
  host_bind?: string;
  protocol?: PortProtocol;
};

export type PreviewHostForm = 'outer' | 'sandbox';

export type PreviewResponse = {
  id: string;
  sandbox_id: string;
  port: number;
  path: string;
  origin: string;
  label: string | null;
  host: PreviewHostForm;
  public: boolean;
  status: PreviewStatus;
  created_by: EventActor;
  created_at: string;
  expires_at: string;
  revoked_at: string | null;
  last_used_at: string | null;
};

export type PreviewStatus = 'open' | 'expired' | 'revoked';

export type PreviewWithToken = {
  id: string;
  sandbox_id: string;
  port: number;
  path: string;
  origin: string;
  label: string | null;
  host: PreviewHostForm;
  public: boolean;
  status: PreviewStatus;
  created_by: EventActor;
  created_at: string;
  expires_at: string;
  revoked_at: string | null;
  last_used_at: string | null;
  url: string | null;
  token: string | null;
};

export type Protocol = 'tcp' | 'udp' | 'icmpv4' | 'icmpv6';

export type PublishedPortSpec = {
  guest_port: number;
  host_port: number;
  host_bind: string;
  protocol?: PortProtocol;
};

export type PutPoolRequest = {
  image: CloudRootfsSource;
  resources?: CloudSandboxResources;
  network?: CloudNetworkSpec;
  pull_policy?: CloudPullPolicy;
  size: number;
  most?: number | null;
};

export type QuotaUsage = {
  hard_cap: boolean;
  vcpu_hours_used: number;
  memory_gib_hours_used: number;
  disk_gib_hours_used: number;
  included_vcpu_hours?: number | null;
  included_memory_gib_hours?: number | null;
  included_disk_gib_hours?: number | null;
  included_storage_gib?: number | null;
  pool_exhausted: boolean;
  is_suspended: boolean;
  total_sandboxes: number;
  max_sandboxes?: number | null;
  concurrent_ephemeral_running: number;
  max_concurrent_ephemeral_running?: number | null;
  concurrent_persistent_running: number;
  max_concurrent_persistent_running?: number | null;
  max_vcpus_per_sandbox?: number | null;
  max_memory_mib_per_sandbox?: number | null;
  max_disk_size_mib_per_sandbox?: number | null;
  max_uptime_minutes_per_sandbox?: number | null;
  max_total_storage_gib?: number | null;
  published_ports: number;
  max_published_ports?: number | null;
  snapshots: number;
  snapshot_gib_used: number;
  max_snapshots?: number | null;
  max_snapshot_gib?: number | null;
};

export type RegistryCredentialResponse = {
  id: string;
  org_id: string;
  pattern: string;
  username: string;
  description: string | null;
  has_password: boolean;
  created_at: string;
  created_by: EventActor;
  updated_at: string;
};

export type RegistryCredentialTestResponse = { accepted: boolean; message: string };

export type RegistrySelection = RegistrySelectionAuto | RegistrySelectionSpecific | RegistrySelectionInline;

export type RegistrySelectionAuto = { mode: 'auto' | 'anonymous' };

export type RegistrySelectionInline = { mode: 'inline'; username: string; password: string };

export type RegistrySelectionSpecific = { mode: 'specific'; credential_id: string };

export type Rlimit = { resource: RlimitResource; soft: number; hard: number };

export type RlimitResource =
  | 'Cpu'
  | 'Fsize'
  | 'Data'
  | 'Stack'
  | 'Core'
  | 'Rss'
  | 'Nproc'
  | 'Nofile'
  | 'Memlock'
  | 'As'
  | 'Locks'
  | 'Sigpending'
  | 'Msgqueue'
  | 'Nice'
  | 'Rtprio'
  | 'Rttime';

export type RotateApiKeyRequest = { overlap_secs?: number };

export type RotateWebhookSecretRequest = { overlap_secs?: number };

export type Rule = {
  direction: Direction;
  destination: Destination;
  action: Action;
  ports?: PortRange[];
  protocols?: Protocol[];
};

export type SandboxCommand = {
  status: 'running' | 'exited' | 'killed' | 'stopped' | 'unknown';
  exit_code: number | null;
  signal: number | null;
  oom_killed: boolean | null;
  ended_at: string | null;
};

export type SandboxDailyUsage = {
  day: string;
  sandbox_id: string;
  vcpu_seconds: number;
  mem_mib_seconds: number;
  disk_mib_seconds: number;
};

export type SandboxFile = {
  path: string;
  kind: SandboxFileKind;
  size: number;
  mode: number;
  uid: number;
  gid: number;
  readonly: boolean;
  accessed_at: string | null;
  modified_at: string | null;
};

export type SandboxFileExists = { exists: boolean };

export type SandboxFileKind = 'file' | 'directory' | 'symlink' | 'other';

export type SandboxFileList = { entries: SandboxFile[] };

export type SandboxFileStat = { metadata: SandboxFile };

export type SandboxHour = { hour: string; started: number; failed: number };

export type SandboxIdentity = { id: string; name: string; slug: string };

export type SandboxLogLevel = 'error' | 'warn' | 'info' | 'debug' | 'trace';

export type SandboxMakeDirectoryRequest = { path: string };

export type SandboxMetrics = {
  sandbox_id: string;
  sample_interval_ms: number | null;
  unavailable_reason: 'not_running' | 'disabled' | 'not_measured' | null;
  cpu_limit_percent: number | null;
  memory_limit_bytes: number | null;
  disk_limit_bytes: number | null;
  current: SandboxMetricsSample | null;
  history_interval_ms: number;
  history: SandboxMetricsSample[];
};

export type SandboxMetricsSample = {
  timestamp: string;
  cpu_percent: number;
  memory_bytes: number | null;
  host_memory_bytes: number | null;
  disk_bytes: number | null;
  disk_read_bytes: number | null;
  disk_write_bytes: number | null;
  net_rx_bytes: number | null;
  net_tx_bytes: number | null;
  processes: number | null;
};

export type SandboxModificationApplyRequest = {
  policy?: ModificationPolicy;
  secrets?: SecretApplyEntry[];
  secrets_remove?: string[];
};

export type SandboxModificationPlanRequest = {
  policy?: ModificationPolicy;
  secrets?: SecretPlanEntry[];
  secrets_remove?: string[];
};

export type SandboxMountResponse =
  | SandboxMountResponseBind
  | SandboxMountResponseNamed
  | SandboxMountResponseTmpfs
  | SandboxMountResponseDiskImage;

export type SandboxMountResponseBind = {
  type: 'Bind';
  guest: string;
  options: MountOptions;
  stat_virtualization: StatVirtualization;
  host_permissions: HostPermissions;
  quota_mib?: number | null;
};

export type SandboxMountResponseDiskImage = {
  type: 'DiskImage';
  guest: string;
  format: DiskImageFormat;
  options: MountOptions;
  fstype?: string | null;
};

export type SandboxMountResponseNamed = {
  type: 'Named';
  name?: string;
  guest: string;
  options: MountOptions;
  stat_virtualization: StatVirtualization;
  host_permissions: HostPermissions;
};

export type SandboxMountResponseTmpfs = {
  type: 'Tmpfs';
  guest: string;
  options: MountOptions;
  size_mib?: number | null;
};

export type SandboxNetworkResponse = {
  enabled: boolean;
  ports: PublishedPortSpec[];
  trust_host_cas: boolean;
  dns?: DnsConfig | null;
  interface?: InterfaceOverrides | null;
  max_connections?: number | null;
  max_udp_connections?: number;
  record?: boolean;
  policy?: NetworkPolicy | null;
  secrets?: SandboxSecretResponse[];
  tls?: TlsConfig | null;
};

export type SandboxOnIdle = 'stop' | 'pause';

export type SandboxPolicy = {
  ephemeral?: boolean;
  idle_timeout_secs?: number | null;
  max_duration_secs?: number | null;
  ends_with_command?: boolean;
  wake_on_request?: boolean;
  on_idle?: SandboxOnIdle;
};

export type SandboxResponse = {
  id: string;
  org_id: string;
  name: string;
  slug: string;
  status: SandboxStatus;
  ephemeral: boolean;
  created_at: string;
  last_failure_message?: string | null;
  spec?: SandboxSpecResponse | null;
  started_at?: string | null;
  stopped_at?: string | null;
  status_reason?: SandboxStatusReason | null;
  stop_reason?: SandboxStopReason | null;
  stop_message?: string | null;
  paused_at?: string | null;
  command?: SandboxCommand | null;
  image_digest?: string | null;
  runtime?: string | null;
  disk_snapshot_id?: string | null;
  source?: SandboxSource | null;
};

export type SandboxRuntimeOptions = {
  cmd?: string[] | null;
  entrypoint?: string[] | null;
  user?: string | null;
  workdir?: string | null;
  shell?: string | null;
  scripts?: Record<string, string>;
  log_level?: SandboxLogLevel | null;
  hostname?: string | null;
  metrics_sample_interval_ms?: number | null;
  disable_metrics_sample?: boolean;
};

export type SandboxSecretResponse = {
  env_var: string;
  placeholder: string;
  allowed_hosts: Record<string, unknown>[];
  injection: Record<string, unknown>;
  on_violation?: Record<string, unknown>;
  require_tls_identity?: boolean;
};

export type SandboxSession = {
  id: string;
  sandbox_id: string;
  kind: SandboxSessionKind;
  actor: EventActor;
  user: string | null;
  program: string | null;
  argument_count: number;
  opened_at: string;
  end_requested_at: string | null;
};

export type SandboxSessionKind = 'exec' | 'terminal' | 'files' | 'tcp';

export type SandboxSource = {
  start: 'warm' | 'cold';
  pool: string | null;
  reason: 'differs' | 'none_ready' | null;
  differs: string[];
};

export type SandboxSpecResponse = {
  resources: CloudSandboxResources;
  runtime: SandboxRuntimeOptions;
  env: EnvVar[];
  labels: Record<string, string>;
  rlimits: Rlimit[];
  lifecycle: SandboxPolicy;
  mounts: SandboxMountResponse[];
  network: SandboxNetworkResponse;
  image?: string | null;
};

export type SandboxStatus = 'created' | 'starting' | 'running' | 'stopping' | 'stopped' | 'failed';

export type SandboxStatusReason = 'scheduling' | 'insufficient_capacity';

export type SandboxStopReason =
  | 'requested'
  | 'idle'
  | 'max_duration'
  | 'quota'
  | 'command'
  | 'oom'
  | 'disk_full'
  | 'engine'
  | 'lost'
  | 'start_failed'
  | 'secret_violation'
  | 'paused'
  | 'budget';

export type SandboxSummary = {
  created: number;
  starting: number;
  waiting: number;
  running: number;
  stopping: number;
  stopped: number;
  failed: number;
  hours: SandboxHour[];
};

export type SandboxTransferRequest = { from: string; to: string };

export type SandboxWaitFor = 'running';

export type SandboxWaitForPaused = 'paused';

export type SandboxWaitForStopped = 'stopped';

export type ScopedUpstreamCaCert = { pattern: string; path: string };

export type ScopedVerifyUpstream = { pattern: string; verify: boolean };

export type SecretApplyEntry = {
  name: string;
  value?: string;
  placeholder?: string;
  allowed_hosts?: CloudHostPattern[];
  substitution?: SecretSubstitution | null;
  passthrough_hosts?: CloudHostPattern[] | null;
  violation_action?: CloudViolationAction | null;
  require_tls_identity?: boolean;
};

export type SecretInjection = {
  headers?: boolean;
  basic_auth?: boolean;
  query_params?: boolean;
  body?: boolean;
};

export type SecretMaterial = SecretMaterialProvided | SecretMaterialAbsent;

export type SecretMaterialAbsent = { type: 'absent' };

export type SecretMaterialProvided = { type: 'provided' };

export type SecretPlanEntry = {
  name: string;
  material: SecretMaterial;
  placeholder?: string;
  allowed_hosts?: CloudHostPattern[];
  substitution?: SecretSubstitution | null;
  passthrough_hosts?: CloudHostPattern[] | null;
  violation_action?: CloudViolationAction | null;
  require_tls_identity?: boolean;
};

export type SecretPlannedChange = {
  kind: 'secret';
  field: 'secret';
  name: string;
  change: 'added' | 'rotated' | 'removed' | 'hosts_updated' | 'placeholder_updated';
  before_ref?: string;
  after_ref?: string;
  disposition: 'live' | 'next_start' | 'requires_restart';
  allow_hosts: string[];
};

export type SecretSubstitution = {
  headers?: boolean;
  header_fields?: string[];
  query?: boolean;
  body?: boolean;
};

export type SecurityProfile = 'default' | 'restricted';

export type SnapshotCandidate = {
  id: string;
  name: string;
  slug: string;
  status: SandboxStatus;
  image: string;
  created_at: string;
};

export type SnapshotError = { code: string; message: string };

export type SnapshotImage = { ref: string; manifest_digest: string };

export type SnapshotIntegrity = { algorithm: 'sha256'; digest: string };

export type SnapshotLayer = { file: string; size_bytes: number; integrity: SnapshotIntegrity | null };

export type SnapshotLocation = { type: 'managed'; id: string };

export type SnapshotManifest = {
  schema: 1;
  artifact: 'snapshot';
  scope: 'disk';
  created_at: string;
  parent: string | null;
  image: SnapshotImage;
  source_sandbox: string | null;
  state: SnapshotState;
  labels: Record<string, string>;
  extensions: Record<string, string>;
  requires: string[];
};

export type SnapshotOperation = {
  id: string;
  kind: 'disk';
  status: SnapshotOperationStatus;
  name: string;
  sandbox_id: string | null;
  sandbox_name: string | null;
  result: SnapshotResponse | null;
  error: SnapshotError | null;
  created_at: string;
  updated_at: string;
  completed_at: string | null;
};

export type SnapshotOperationStatus = 'queued' | 'in_progress' | 'succeeded' | 'failed';

export type SnapshotResponse = {
  kind: 'disk';
  id: string;
  name: string;
  status: SnapshotStatus;
  location: SnapshotLocation;
  sandbox_id: string | null;
  digest: string;
  size_bytes: number;
  manifest: SnapshotManifest;
  labels: Record<string, string>;
  created_by: EventActor;
  created_at: string;
  purge_at: string | null;
};

export type SnapshotState = { kind: 'file'; format: 'raw' | 'qcow2'; fstype: string; upper: SnapshotLayer };

export type SnapshotStatus = 'ready' | 'deleting';

export type StatVirtualization = 'strict' | 'relaxed' | 'off';

export type StorageBreakdown = { rows: StorageDailyUsage[]; volumes: VolumeIdentity[] };

export type StorageDailyUsage = { day: string; volume_id: string; mib_seconds: number };

export type TemplateConfig = {
  env: { key: string; value: string }[];
  workdir: string | null;
  user: string | null;
  cmd: string[] | null;
  entrypoint: string[] | null;
  labels: Record<string, string>;
  exposed: string[];
};

export type TemplateError = { code: string; message: string; line: number | null };

export type TemplateResponse = {
  id: string;
  name: string;
  tag: string;
  status: TemplateStatus;
  steps: number;
  steps_done: number;
  steps_cached: number;
  error: TemplateError | null;
  config: TemplateConfig | null;
  size_bytes: number | null;
  snapshot_id: string | null;
  digest: string | null;
  dockerfile: string;
  target: string | null;
  context_digest: string | null;
  sandbox_id: string | null;
  labels: Record<string, string>;
  created_by: EventActor;
  created_at: string;
  started_at: string | null;
  completed_at: string | null;
};

export type TemplateStatus = 'queued' | 'building' | 'succeeded' | 'failed' | 'cancelled';

export type TerminalRequest = {
  cmd?: string;
  args?: string[];
  env?: EnvVarRequest[] | Record<string, string>;
  cwd?: string | null;
  user?: string | null;
  rows?: number;
  cols?: number;
};

export type TerminalTicket = { ticket: string; path: string; expires_at: string };

export type TestRegistryCredentialRequest = { reference?: string };

export type TlsConfig = {
  enabled?: boolean;
  intercepted_ports?: number[];
  bypass?: string[];
  verify_upstream?: boolean;
  upstream_ca_cert?: string[];
  scoped_upstream_ca_cert?: ScopedUpstreamCaCert[];
  scoped_verify_upstream?: ScopedVerifyUpstream[];
  block_quic_on_intercept?: boolean;
  cache?: CertCacheConfig;
  intercept_ca?: InterceptCaConfig;
};

export type UnlabelledDailyUsage = {
  day: string;
  vcpu_seconds: number;
  mem_mib_seconds: number;
  disk_mib_seconds: number;
  cost: string | null;
};

export type UpdateBudgetRequest = {
  name?: string;
  limit?: string;
  thresholds?: number[];
  action?: 'warn' | 'refuse_starts' | 'stop';
};

export type UpdateMemberRequest = { role?: OrgRole; labels?: Record<string, string> };

export type UpdateRegistryCredentialRequest = {
  username?: string;
  password?: string;
  description?: string | null;
};

export type UpdateSandboxRequest = {
  name?: string | null;
  slug?: string | null;
  labels?: Record<string, string> | null;
};

export type UpdateVolumeRequest = { capacity_gib?: number | null; labels?: Record<string, string> | null };

export type UpdateWebhookRequest = {
  url?: string;
  description?: string | null;
  event_types?: string[];
  format?: 'sandkeep' | 'cloudevents' | 'ocsf';
  status?: 'active' | 'disabled';
};

export type UsageBreakdown = { rows: SandboxDailyUsage[]; sandboxes: SandboxIdentity[] };

export type UsageDailyPoint = { date: string; metric: string; quantity: number };

export type UsageLineItem = { name: string; quantity: number; unit: string; amount_cents: number };

export type UsageSummary = {
  period_start: string;
  period_end: string;
  line_items: UsageLineItem[];
  total_cents: number;
  projected_spend_cents: number;
  currency: string | null;
  minor_unit_digits: number | null;
  daily: UsageDailyPoint[];
  storage_gib: number | null;
};

export type VolumeFile = {
  path: string;
  kind: VolumeFileKind;
  target?: string;
  size: number;
  mode: number;
  uid: number;
  gid: number;
  readonly: boolean;
  accessed_at: string | null;
  modified_at: string | null;
  created_at: string | null;
};

export type VolumeFileExists = { exists: boolean };

export type VolumeFileKind = 'file' | 'directory' | 'symlink';

export type VolumeFileList = { entries: VolumeFile[] };

export type VolumeFileStat = { metadata: VolumeFile };

export type VolumeIdentity = { id: string; name?: string | null };

export type VolumeKind = 'host' | 'managed';

export type VolumeMakeDirectoryRequest = { path: string };

export type VolumeResponse = {
  id: string;
  kind: VolumeKind;
  name?: string | null;
  storage: VolumeType;
  status: VolumeStatus;
  labels: Record<string, string>;
  capacity_bytes?: number | null;
  used_bytes?: number | null;
  created_at: string;
  updated_at: string;
};

export type VolumeStatus = 'active' | 'deleting';

export type VolumeTransferRequest = { from: string; to: string };

export type VolumeType = 'block';

export type Warning = { field: string; message: string; nearest?: string };

export type WebhookAttempt = {
  at: string;
  duration_ms: number;
  response_status: number | null;
  response_body: string | null;
  error: string | null;
};

export type WebhookDelivery = {
  id: string;
  webhook_id: string;
  event_id: string;
  event_type: string;
  seq: number | null;
  status: 'pending' | 'delivered' | 'failed';
  attempts: number;
  next_attempt_at: string | null;
  created_at: string;
  settled_at: string | null;
  results: WebhookAttempt[];
};

export type WebhookResponse = {
  id: string;
  org_id: string;
  url: string;
  description: string | null;
  event_types: string[];
  format: 'sandkeep' | 'cloudevents' | 'ocsf';
  status: 'active' | 'disabled';
  disabled_reason: 'failing' | 'gone' | 'secret_lost' | null;
  failing_since: string | null;
  previous_secret_until: string | null;
  created_at: string;
  created_by: EventActor;
  updated_at: string;
};

export type WebhookWithSecret = {
  id: string;
  org_id: string;
  url: string;
  description: string | null;
  event_types: string[];
  format: 'sandkeep' | 'cloudevents' | 'ocsf';
  status: 'active' | 'disabled';
  disabled_reason: 'failing' | 'gone' | 'secret_lost' | null;
  failing_since: string | null;
  previous_secret_until: string | null;
  created_at: string;
  created_by: EventActor;
  updated_at: string;
  secret: string;
};

export type WrittenForkOperation = {
  warnings?: Warning[];
  id: string;
  status: ForkOperationStatus;
  sandbox_id: string;
  sandbox_name: string;
  count: number;
  size_bytes: number | null;
  error: SnapshotError | null;
  created_at: string;
  updated_at: string;
  completed_at: string | null;
  sandboxes: ForkedSandbox[];
};

export type WrittenMessageResponse = { warnings?: Warning[]; message: string };

export type WrittenSandboxModificationPlan = {
  warnings: ModificationRemark[];
  sandbox: string;
  status: string;
  applied: boolean;
  policy: ModificationPolicy;
  changes: SecretPlannedChange[];
  conflicts: ModificationRemark[];
};

export type WrittenSandboxResponse = {
  warnings?: Warning[];
  id: string;
  org_id: string;
  name: string;
  slug: string;
  status: SandboxStatus;
  ephemeral: boolean;
  created_at: string;
  last_failure_message?: string | null;
  spec?: SandboxSpecResponse | null;
  started_at?: string | null;
  stopped_at?: string | null;
  status_reason?: SandboxStatusReason | null;
  stop_reason?: SandboxStopReason | null;
  stop_message?: string | null;
  paused_at?: string | null;
  command?: SandboxCommand | null;
  image_digest?: string | null;
  runtime?: string | null;
  disk_snapshot_id?: string | null;
  source?: SandboxSource | null;
};

export type WrittenSnapshotOperation = {
  warnings?: Warning[];
  id: string;
  kind: 'disk';
  status: SnapshotOperationStatus;
  name: string;
  sandbox_id: string | null;
  sandbox_name: string | null;
  result: SnapshotResponse | null;
  error: SnapshotError | null;
  created_at: string;
  updated_at: string;
  completed_at: string | null;
};

export type WrittenSnapshotResponse = {
  warnings?: Warning[];
  kind: 'disk';
  id: string;
  name: string;
  status: SnapshotStatus;
  location: SnapshotLocation;
  sandbox_id: string | null;
  digest: string;
  size_bytes: number;
  manifest: SnapshotManifest;
  labels: Record<string, string>;
  created_by: EventActor;
  created_at: string;
  purge_at: string | null;
};

export type WrittenVolumeResponse = {
  warnings?: Warning[];
  id: string;
  kind: VolumeKind;
  name?: string | null;
  storage: VolumeType;
  status: VolumeStatus;
  labels: Record<string, string>;
  capacity_bytes?: number | null;
  used_bytes?: number | null;
  created_at: string;
  updated_at: string;
};

export type WrittenWebhookDelivery = {
  warnings?: Warning[];
  id: string;
  webhook_id: string;
  event_id: string;
  event_type: string;
  seq: number | null;
  status: 'pending' | 'delivered' | 'failed';
  attempts: number;
  next_attempt_at: string | null;
  created_at: string;
  settled_at: string | null;
  results: WebhookAttempt[];
};

export interface Operations {
  'GET /v1/sandboxes': {
    path: {};
    query: {
      cursor?: string;
      limit?: number;
      labels?: string;
      status?: SandboxStatus[];
      stop_reason?: SandboxStopReason[];
      name_prefix?: string;
      name_contains?: string;
      created_after?: string;
      created_before?: string;
      sort?: '-created_at' | 'created_at' | 'name';
    };
    body: undefined;
    answer: PaginatedSandboxResponse;
  };
  'POST /v1/sandboxes': {
    path: {};
    query: { start?: boolean; wait_for?: SandboxWaitFor; wait_timeout?: number };
    body: CreateSandboxRequest;
    answer: WrittenSandboxResponse;
  };
  'GET /v1/sandboxes/summary': {
    path: {};
    query: {};
    body: undefined;
    answer: SandboxSummary;
  };
  'GET /v1/sandboxes/{sandbox_id}': {
    path: { sandbox_id: string };
    query: {};
    body: undefined;
    answer: SandboxResponse;
  };
  'DELETE /v1/sandboxes/{sandbox_id}': {
    path: { sandbox_id: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'PATCH /v1/sandboxes/{sandbox_id}': {
    path: { sandbox_id: string };
    query: {};
    body: UpdateSandboxRequest;
    answer: WrittenSandboxResponse;
  };
  'PUT /v1/sandboxes/{sandbox_id}': {
    path: { sandbox_id: string };
    query: {};
    body: SandboxModificationApplyRequest;
    answer: WrittenSandboxModificationPlan;
  };
  'POST /v1/sandboxes/{sandbox_id}/start': {
    path: { sandbox_id: string };
    query: { wait_for?: SandboxWaitFor; wait_timeout?: number };
    body: undefined;
    answer: WrittenSandboxResponse;
  };
  'POST /v1/sandboxes/{sandbox_id}/stop': {
    path: { sandbox_id: string };
    query: { wait_for?: SandboxWaitForStopped; wait_timeout?: number };
    body: undefined;
    answer: WrittenSandboxResponse;
  };
  'POST /v1/sandboxes/{sandbox_id}/pause': {
    path: { sandbox_id: string };
    query: { wait_for?: SandboxWaitForPaused; wait_timeout?: number };
    body: undefined;
    answer: WrittenSandboxResponse;
  };
  'POST /v1/sandboxes/{sandbox_id}/resume': {
    path: { sandbox_id: string };
    query: { wait_for?: SandboxWaitFor; wait_timeout?: number };
    body: undefined;
    answer: WrittenSandboxResponse;
  };
  'POST /v1/sandboxes/{sandbox_id}/restart': {
    path: { sandbox_id: string };
    query: { wait_for?: SandboxWaitFor; wait_timeout?: number };
    body: undefined;
    answer: WrittenSandboxResponse;
  };
  'GET /v1/sandboxes/by-name/{name}': {
    path: { name: string };
    query: {};
    body: undefined;
    answer: SandboxResponse;
  };
  'DELETE /v1/sandboxes/by-name/{name}': {
    path: { name: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'PATCH /v1/sandboxes/by-name/{name}': {
    path: { name: string };
    query: {};
    body: UpdateSandboxRequest;
    answer: WrittenSandboxResponse;
  };
  'POST /v1/sandboxes/by-name/{name}/start': {
    path: { name: string };
    query: { wait_for?: SandboxWaitFor; wait_timeout?: number };
    body: undefined;
    answer: WrittenSandboxResponse;
  };
  'POST /v1/sandboxes/by-name/{name}/stop': {
    path: { name: string };
    query: { wait_for?: SandboxWaitForStopped; wait_timeout?: number };
    body: undefined;
    answer: WrittenSandboxResponse;
  };
  'POST /v1/sandboxes/by-name/{name}/pause': {
    path: { name: string };
    query: { wait_for?: SandboxWaitForPaused; wait_timeout?: number };
    body: undefined;
    answer: WrittenSandboxResponse;
  };
  'POST /v1/sandboxes/by-name/{name}/resume': {
    path: { name: string };
    query: { wait_for?: SandboxWaitFor; wait_timeout?: number };
    body: undefined;
    answer: WrittenSandboxResponse;
  };
  'POST /v1/sandboxes/by-name/{name}/restart': {
    path: { name: string };
    query: { wait_for?: SandboxWaitFor; wait_timeout?: number };
    body: undefined;
    answer: WrittenSandboxResponse;
  };
  'GET /v1/sandboxes/{sandbox_id}/logs': {
    path: { sandbox_id: string };
    query: { sources?: string; mask_secrets?: boolean };
    body: undefined;
    answer: undefined;
  };
  'GET /v1/sandboxes/by-name/{name}/logs': {
    path: { name: string };
    query: { sources?: string; mask_secrets?: boolean };
    body: undefined;
    answer: undefined;
  };
  'GET /v1/sandboxes/{sandbox_id}/metrics': {
    path: { sandbox_id: string };
    query: {};
    body: undefined;
    answer: SandboxMetrics;
  };
  'GET /v1/sandboxes/{sandbox_id}/metrics/stream': {
    path: { sandbox_id: string };
    query: {};
    body: undefined;
    answer: undefined;
  };
  'GET /v1/sandboxes/by-name/{name}/metrics': {
    path: { name: string };
    query: {};
    body: undefined;
    answer: SandboxMetrics;
  };
  'GET /v1/sandboxes/by-name/{name}/metrics/stream': {
    path: { name: string };
    query: {};
    body: undefined;
    answer: undefined;
  };
  'POST /v1/sandboxes/{sandbox_id}/modifications/plan': {
    path: { sandbox_id: string };
    query: {};
    body: SandboxModificationPlanRequest;
    answer: WrittenSandboxModificationPlan;
  };
  'GET /v1/sandboxes/{sandbox_id}/network/denied': {
    path: { sandbox_id: string };
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: PaginatedDeniedConnection;
  };
  'GET /v1/sandboxes/by-name/{name}/network/denied': {
    path: { name: string };
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: PaginatedDeniedConnection;
  };
  'GET /v1/pools': {
    path: {};
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: PaginatedPoolResponse;
  };
  'PUT /v1/pools/{name}': {
    path: { name: string };
    query: {};
    body: PutPoolRequest;
    answer: PoolResponse;
  };
  'GET /v1/pools/{name}': {
    path: { name: string };
    query: {};
    body: undefined;
    answer: PoolWithSandboxes;
  };
  'DELETE /v1/pools/{name}': {
    path: { name: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'POST /v1/snapshots': {
    path: {};
    query: {};
    body: CreateSnapshotRequest;
    answer: WrittenSnapshotOperation;
  };
  'GET /v1/snapshots': {
    path: {};
    query: { cursor?: string; limit?: number; labels?: string; include?: 'deleted' };
    body: undefined;
    answer: PaginatedSnapshot;
  };
  'GET /v1/snapshots/{id}': {
    path: { id: string };
    query: {};
    body: undefined;
    answer: SnapshotResponse;
  };
  'DELETE /v1/snapshots/{id}': {
    path: { id: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'GET /v1/snapshots/by-name/{name}': {
    path: { name: string };
    query: {};
    body: undefined;
    answer: SnapshotResponse;
  };
  'DELETE /v1/snapshots/by-name/{name}': {
    path: { name: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'POST /v1/snapshots/{id}/restore': {
    path: { id: string };
    query: {};
    body: undefined;
    answer: WrittenSnapshotResponse;
  };
  'GET /v1/sandboxes/snapshot-candidates': {
    path: {};
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: PaginatedSnapshotCandidate;
  };
  'GET /v1/snapshot-operations': {
    path: {};
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: PaginatedSnapshotOperation;
  };
  'GET /v1/snapshot-operations/{id}': {
    path: { id: string };
    query: {};
    body: undefined;
    answer: SnapshotOperation;
  };
  'GET /v1/templates': {
    path: {};
    query: {
      cursor?: string;
      limit?: number;
      name?: string;
      tag?: string;
      status?: ('queued' | 'building' | 'succeeded' | 'failed' | 'cancelled')[];
    };
    body: undefined;
    answer: PaginatedTemplate;
  };
  'POST /v1/templates': {
    path: {};
    query: {
      tag: string;
      dockerfile?: string;
      build_args?: string;
      target?: string;
      labels?: string;
      sandbox?: string;
      cache?: boolean;
      timeout_secs?: number;
    };
    body: undefined;
    answer: TemplateResponse;
  };
  'GET /v1/templates/{id}': {
    path: { id: string };
    query: {};
    body: undefined;
    answer: TemplateResponse;
  };
  'DELETE /v1/templates/{id}': {
    path: { id: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'GET /v1/templates/{id}/log': {
    path: { id: string };
    query: {};
    body: undefined;
    answer: undefined;
  };
  'POST /v1/sandboxes/{sandbox_id}/fork': {
    path: { sandbox_id: string };
    query: {};
    body: ForkRequest;
    answer: WrittenForkOperation;
  };
  'POST /v1/sandboxes/by-name/{name}/fork': {
    path: { name: string };
    query: {};
    body: ForkRequest;
    answer: WrittenForkOperation;
  };
  'GET /v1/fork-operations': {
    path: {};
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: PaginatedFork;
  };
  'GET /v1/fork-operations/{id}': {
    path: { id: string };
    query: {};
    body: undefined;
    answer: ForkOperation;
  };
  'GET /v1/snapshots/{id}/export': {
    path: { id: string };
    query: {};
    body: undefined;
    answer: undefined;
  };
  'GET /v1/snapshots/by-name/{name}/export': {
    path: { name: string };
    query: {};
    body: undefined;
    answer: undefined;
  };
  'GET /v1/sandboxes/{sandbox_id}/agent': {
    path: { sandbox_id: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'POST /v1/sandboxes/{sandbox_id}/exec': {
    path: { sandbox_id: string };
    query: {};
    body: ExecRequest;
    answer: ExecResult;
  };
  'POST /v1/sandboxes/by-name/{name}/exec': {
    path: { name: string };
    query: {};
    body: ExecRequest;
    answer: ExecResult;
  };
  'GET /v1/sandboxes/{sandbox_id}/files': {
    path: { sandbox_id: string };
    query: { path?: string };
    body: undefined;
    answer: SandboxFileList;
  };
  'DELETE /v1/sandboxes/{sandbox_id}/files': {
    path: { sandbox_id: string };
    query: { path?: string };
    body: undefined;
    answer: MessageResponse;
  };
  'GET /v1/sandboxes/{sandbox_id}/files/stat': {
    path: { sandbox_id: string };
    query: { path?: string };
    body: undefined;
    answer: SandboxFileStat;
  };
  'GET /v1/sandboxes/{sandbox_id}/files/exists': {
    path: { sandbox_id: string };
    query: { path?: string };
    body: undefined;
    answer: SandboxFileExists;
  };
  'GET /v1/sandboxes/{sandbox_id}/files/content': {
    path: { sandbox_id: string };
    query: { path?: string };
    body: undefined;
    answer: undefined;
  };
  'PUT /v1/sandboxes/{sandbox_id}/files/content': {
    path: { sandbox_id: string };
    query: { path?: string };
    body: undefined;
    answer: MessageResponse;
  };
  'POST /v1/sandboxes/{sandbox_id}/files/mkdir': {
    path: { sandbox_id: string };
    query: {};
    body: SandboxMakeDirectoryRequest;
    answer: WrittenMessageResponse;
  };
  'POST /v1/sandboxes/{sandbox_id}/files/copy': {
    path: { sandbox_id: string };
    query: {};
    body: SandboxTransferRequest;
    answer: WrittenMessageResponse;
  };
  'POST /v1/sandboxes/{sandbox_id}/files/rename': {
    path: { sandbox_id: string };
    query: {};
    body: SandboxTransferRequest;
    answer: WrittenMessageResponse;
  };
  'GET /v1/sandboxes/by-name/{name}/files': {
    path: { name: string };
    query: { path?: string };
    body: undefined;
    answer: SandboxFileList;
  };
  'DELETE /v1/sandboxes/by-name/{name}/files': {
    path: { name: string };
    query: { path?: string };
    body: undefined;
    answer: MessageResponse;
  };
  'GET /v1/sandboxes/by-name/{name}/files/stat': {
    path: { name: string };
    query: { path?: string };
    body: undefined;
    answer: SandboxFileStat;
  };
  'GET /v1/sandboxes/by-name/{name}/files/exists': {
    path: { name: string };
    query: { path?: string };
    body: undefined;
    answer: SandboxFileExists;
  };
  'GET /v1/sandboxes/by-name/{name}/files/content': {
    path: { name: string };
    query: { path?: string };
    body: undefined;
    answer: undefined;
  };
  'PUT /v1/sandboxes/by-name/{name}/files/content': {
    path: { name: string };
    query: { path?: string };
    body: undefined;
    answer: MessageResponse;
  };
  'POST /v1/sandboxes/by-name/{name}/files/mkdir': {
    path: { name: string };
    query: {};
    body: SandboxMakeDirectoryRequest;
    answer: WrittenMessageResponse;
  };
  'POST /v1/sandboxes/by-name/{name}/files/copy': {
    path: { name: string };
    query: {};
    body: SandboxTransferRequest;
    answer: WrittenMessageResponse;
  };
  'POST /v1/sandboxes/by-name/{name}/files/rename': {
    path: { name: string };
    query: {};
    body: SandboxTransferRequest;
    answer: WrittenMessageResponse;
  };
  'POST /v1/sandboxes/{sandbox_id}/terminal-tickets': {
    path: { sandbox_id: string };
    query: {};
    body: TerminalRequest;
    answer: TerminalTicket;
  };
  'POST /v1/sandboxes/by-name/{name}/terminal-tickets': {
    path: { name: string };
    query: {};
    body: TerminalRequest;
    answer: TerminalTicket;
  };
  'GET /v1/sandboxes/{sandbox_id}/terminal': {
    path: { sandbox_id: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'GET /v1/sandboxes/{sandbox_id}/ports/{port}/connect': {
    path: { sandbox_id: string; port: number };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'GET /v1/sandboxes/by-name/{name}/ports/{port}/connect': {
    path: { name: string; port: number };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'GET /v1/sandboxes/{sandbox_id}/sessions': {
    path: { sandbox_id: string };
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: PaginatedSandboxSession;
  };
  'DELETE /v1/sandboxes/{sandbox_id}/sessions/{session_id}': {
    path: { sandbox_id: string; session_id: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'GET /v1/sandboxes/by-name/{name}/sessions': {
    path: { name: string };
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: PaginatedSandboxSession;
  };
  'DELETE /v1/sandboxes/by-name/{name}/sessions/{session_id}': {
    path: { name: string; session_id: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'POST /v1/sandboxes/{sandbox_id}/previews': {
    path: { sandbox_id: string };
    query: {};
    body: CreatePreviewRequest;
    answer: PreviewWithToken;
  };
  'GET /v1/sandboxes/{sandbox_id}/previews': {
    path: { sandbox_id: string };
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: PaginatedPreviewResponse;
  };
  'GET /v1/sandboxes/{sandbox_id}/previews/{preview_id}': {
    path: { sandbox_id: string; preview_id: string };
    query: {};
    body: undefined;
    answer: PreviewResponse;
  };
  'DELETE /v1/sandboxes/{sandbox_id}/previews/{preview_id}': {
    path: { sandbox_id: string; preview_id: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'GET /v1/events': {
    path: {};
    query: {
      event_type?: string[];
      category?: string[];
      actor_kind?: (
        'user' | 'api_key' | 'system' | 'ssh_key' | '!user' | '!api_key' | '!system' | '!ssh_key'
      )[];
      actor_id?: string[];
      resource_id?: string[];
      since?: string;
      until?: string;
      cursor?: string;
      limit?: number;
    };
    body: undefined;
    answer: PaginatedEventResponse;
  };
  'GET /v1/events/export': {
    path: {};
    query: {
      event_type?: string[];
      category?: string[];
      actor_kind?: (
        'user' | 'api_key' | 'system' | 'ssh_key' | '!user' | '!api_key' | '!system' | '!ssh_key'
      )[];
      actor_id?: string[];
      resource_id?: string[];
      since?: string;
      until?: string;
      format?: 'ndjson' | 'csv' | 'ocsf';
      cursor?: string;
      after_seq?: number;
    };
    body: undefined;
    answer: undefined;
  };
  'GET /v1/events/stream': {
    path: {};
    query: {
      event_type?: string[];
      category?: string[];
      actor_kind?: (
        'user' | 'api_key' | 'system' | 'ssh_key' | '!user' | '!api_key' | '!system' | '!ssh_key'
      )[];
      actor_id?: string[];
      resource_id?: string[];
      since?: string;
      until?: string;
      format?: 'sandkeep' | 'ocsf';
      cursor?: string;
    };
    body: undefined;
    answer: undefined;
  };
  'GET /v1/events/{event_id}': {
    path: { event_id: string };
    query: {};
    body: undefined;
    answer: EventResponse;
  };
  'GET /v1/registry-credentials': {
    path: {};
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: PaginatedRegistryCredentialResponse;
  };
  'POST /v1/registry-credentials': {
    path: {};
    query: {};
    body: CreateRegistryCredentialRequest;
    answer: RegistryCredentialResponse;
  };
  'GET /v1/registry-credentials/{credential_id}': {
    path: { credential_id: string };
    query: {};
    body: undefined;
    answer: RegistryCredentialResponse;
  };
  'PATCH /v1/registry-credentials/{credential_id}': {
    path: { credential_id: string };
    query: {};
    body: UpdateRegistryCredentialRequest;
    answer: RegistryCredentialResponse;
  };
  'DELETE /v1/registry-credentials/{credential_id}': {
    path: { credential_id: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'POST /v1/registry-credentials/{credential_id}/test': {
    path: { credential_id: string };
    query: {};
    body: TestRegistryCredentialRequest;
    answer: RegistryCredentialTestResponse;
  };
  'GET /v1/webhooks': {
    path: {};
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: PaginatedWebhookResponse;
  };
  'POST /v1/webhooks': {
    path: {};
    query: {};
    body: CreateWebhookRequest;
    answer: WebhookWithSecret;
  };
  'GET /v1/webhooks/{webhook_id}': {
    path: { webhook_id: string };
    query: {};
    body: undefined;
    answer: WebhookResponse;
  };
  'PATCH /v1/webhooks/{webhook_id}': {
    path: { webhook_id: string };
    query: {};
    body: UpdateWebhookRequest;
    answer: WebhookResponse;
  };
  'DELETE /v1/webhooks/{webhook_id}': {
    path: { webhook_id: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'POST /v1/webhooks/{webhook_id}/rotate-secret': {
    path: { webhook_id: string };
    query: {};
    body: RotateWebhookSecretRequest;
    answer: WebhookWithSecret;
  };
  'POST /v1/webhooks/{webhook_id}/test': {
    path: { webhook_id: string };
    query: {};
    body: undefined;
    answer: WrittenWebhookDelivery;
  };
  'GET /v1/webhooks/{webhook_id}/deliveries': {
    path: { webhook_id: string };
    query: { status?: 'pending' | 'delivered' | 'failed'; cursor?: string; limit?: number };
    body: undefined;
    answer: PaginatedWebhookDelivery;
  };
  'POST /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver': {
    path: { webhook_id: string; delivery_id: string };
    query: {};
    body: undefined;
    answer: WrittenWebhookDelivery;
  };
  'GET /v1/billing/usage': {
    path: {};
    query: { month?: string };
    body: undefined;
    answer: UsageSummary;
  };
  'GET /v1/billing/usage/sandbox': {
    path: {};
    query: {
      since?: unknown | unknown;
      until?: unknown | unknown;
      sandbox_id?: string[];
      labels?: string;
      format?: 'json' | 'csv' | 'focus';
    };
    body: undefined;
    answer: UsageBreakdown;
  };
  'GET /v1/billing/usage/labels': {
    path: {};
    query: {
      key: string[];
      since?: unknown | unknown;
      until?: unknown | unknown;
      sandbox_id?: string[];
      labels?: string;
    };
    body: undefined;
    answer: LabelBreakdown;
  };
  'GET /v1/billing/usage/storage': {
    path: {};
    query: { since?: unknown | unknown; until?: unknown | unknown; format?: 'json' | 'csv' | 'focus' };
    body: undefined;
    answer: StorageBreakdown;
  };
  'GET /v1/volumes': {
    path: {};
    query: { include?: 'deleted' };
    body: undefined;
    answer: VolumeResponse[];
  };
  'POST /v1/volumes': {
    path: {};
    query: {};
    body: CreateVolumeRequest;
    answer: WrittenVolumeResponse;
  };
  'GET /v1/volumes/default': {
    path: {};
    query: {};
    body: undefined;
    answer: VolumeResponse;
  };
  'GET /v1/volumes/{id}': {
    path: { id: string };
    query: {};
    body: undefined;
    answer: VolumeResponse;
  };
  'DELETE /v1/volumes/{id}': {
    path: { id: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'PATCH /v1/volumes/{id}': {
    path: { id: string };
    query: {};
    body: UpdateVolumeRequest;
    answer: WrittenVolumeResponse;
  };
  'POST /v1/volumes/{id}/restore': {
    path: { id: string };
    query: {};
    body: undefined;
    answer: WrittenVolumeResponse;
  };
  'GET /v1/volumes/{id}/files': {
    path: { id: string };
    query: { path?: string };
    body: undefined;
    answer: VolumeFileList;
  };
  'DELETE /v1/volumes/{id}/files': {
    path: { id: string };
    query: { path?: string };
    body: undefined;
    answer: MessageResponse;
  };
  'GET /v1/volumes/{id}/files/stat': {
    path: { id: string };
    query: { path?: string };
    body: undefined;
    answer: VolumeFileStat;
  };
  'GET /v1/volumes/{id}/files/exists': {
    path: { id: string };
    query: { path?: string };
    body: undefined;
    answer: VolumeFileExists;
  };
  'GET /v1/volumes/{id}/files/content': {
    path: { id: string };
    query: { path?: string };
    body: undefined;
    answer: undefined;
  };
  'PUT /v1/volumes/{id}/files/content': {
    path: { id: string };
    query: { path?: string };
    body: undefined;
    answer: MessageResponse;
  };
  'POST /v1/volumes/{id}/files/mkdir': {
    path: { id: string };
    query: {};
    body: VolumeMakeDirectoryRequest;
    answer: WrittenMessageResponse;
  };
  'POST /v1/volumes/{id}/files/copy': {
    path: { id: string };
    query: {};
    body: VolumeTransferRequest;
    answer: WrittenMessageResponse;
  };
  'POST /v1/volumes/{id}/files/rename': {
    path: { id: string };
    query: {};
    body: VolumeTransferRequest;
    answer: WrittenMessageResponse;
  };
  'GET /v1/me/org': {
    path: {};
    query: {};
    body: undefined;
    answer: OrgWithRole;
  };
  'GET /v1/members': {
    path: {};
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: PaginatedMemberResponse;
  };
  'PATCH /v1/members/{member_id}': {
    path: { member_id: string };
    query: {};
    body: UpdateMemberRequest;
    answer: OrgMemberResponse;
  };
  'DELETE /v1/members/{member_id}': {
    path: { member_id: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'GET /v1/invitations': {
    path: {};
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: PaginatedInvitationResponse;
  };
  'POST /v1/invitations': {
    path: {};
    query: {};
    body: CreateInvitationRequest;
    answer: InvitationWithLink;
  };
  'DELETE /v1/invitations/{invitation_id}': {
    path: { invitation_id: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'GET /v1/budgets': {
    path: {};
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: PaginatedBudgetResponse;
  };
  'POST /v1/budgets': {
    path: {};
    query: {};
    body: CreateBudgetRequest;
    answer: BudgetResponse;
  };
  'GET /v1/budgets/{budget_id}': {
    path: { budget_id: string };
    query: {};
    body: undefined;
    answer: BudgetResponse;
  };
  'PATCH /v1/budgets/{budget_id}': {
    path: { budget_id: string };
    query: {};
    body: UpdateBudgetRequest;
    answer: BudgetResponse;
  };
  'DELETE /v1/budgets/{budget_id}': {
    path: { budget_id: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'GET /v1/quotas': {
    path: {};
    query: {};
    body: undefined;
    answer: QuotaUsage;
  };
  'GET /v1/keys': {
    path: {};
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: PaginatedApiKeyResponse;
  };
  'POST /v1/keys': {
    path: {};
    query: {};
    body: CreateApiKeyRequest;
    answer: ApiKeyWithSecret;
  };
  'GET /v1/keys/{id}': {
    path: { id: string };
    query: {};
    body: undefined;
    answer: ApiKeyResponse;
  };
  'DELETE /v1/keys/{id}': {
    path: { id: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'POST /v1/keys/{id}/rotate': {
    path: { id: string };
    query: {};
    body: RotateApiKeyRequest;
    answer: ApiKeyWithSecret;
  };
  'GET /v1/tokens': {
    path: {};
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: PaginatedPersonalTokenResponse;
  };
  'POST /v1/tokens': {
    path: {};
    query: {};
    body: CreatePersonalTokenRequest;
    answer: PersonalTokenWithSecret;
  };
  'DELETE /v1/tokens/{token_id}': {
    path: { token_id: string };
    query: {};
    body: undefined;
    answer: MessageResponse;
  };
  'POST /mcp': {
    path: {};
    query: {};
    body: McpMessage;
    answer: McpAnswer;
  };
  'POST /v1/snapshots/import': {
    path: {};
    query: { name: string; labels?: string };
    body: undefined;
    answer: SnapshotResponse;
  };
}
