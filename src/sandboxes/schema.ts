import { Type, type Static } from 'typebox';
import {
  DateTime,
  Int32,
  Int64,
  Named,
  Nullable,
  PageOf,
  StringMap,
  Uuid,
  Variants,
  Words,
} from '../http/schema.js';
import { MountRequest, SandboxMount } from './mount-schema.js';
import { NetworkRequest, SandboxNetwork } from './network-schema.js';

export const STATUSES = ['created', 'starting', 'running', 'stopping', 'stopped', 'failed'] as const;
export const SandboxStatus = Words([...STATUSES], { title: 'SandboxStatus' });
export type SandboxStatus = Static<typeof SandboxStatus>;

const SandboxStatusReason = Words(['scheduling', 'insufficient_capacity'], { title: 'SandboxStatusReason' });

const EnvVar = Named('EnvVar', { key: Type.String(), value: Type.String() });

const Resources = Named('CloudSandboxResources', {
  vcpus: Type.Optional(Int32({ default: 1, description: 'Virtual CPUs.' })),
  memory_mib: Type.Optional(Int32({ default: 512, description: 'Guest memory in MiB.' })),
  disk_size_mib: Type.Optional(Nullable(Int32({ description: 'Writable disk in MiB.' }))),
});

const LogLevel = Words(['error', 'warn', 'info', 'debug', 'trace'], { title: 'SandboxLogLevel' });

const runtimeOptions = {
  cmd: Type.Optional(
    Nullable(Type.Array(Type.String(), { description: 'In place of the command of the image.' })),
  ),
  entrypoint: Type.Optional(
    Nullable(Type.Array(Type.String(), { description: 'In place of the entrypoint of the image.' })),
  ),
  user: Type.Optional(Nullable(Type.String())),
  workdir: Type.Optional(Nullable(Type.String())),
  shell: Type.Optional(Nullable(Type.String())),
  scripts: Type.Optional(StringMap({ description: 'Named scripts in the guest.' })),
  log_level: Type.Optional(Nullable(LogLevel)),
};

const Lifecycle = Named('SandboxPolicy', {
  ephemeral: Type.Optional(Type.Boolean({ default: false })),
  idle_timeout_secs: Type.Optional(Nullable(Int64())),
  max_duration_secs: Type.Optional(Nullable(Int64())),
  ends_with_command: Type.Optional(
    Type.Boolean({
      description:
        'An extension for batch work. The run ends when `runtime.cmd` ends, and its exit code is the outcome: 0 is `stopped`, any other `failed`. Default: false, the sandbox stays up.',
    }),
  ),
});

// What is shown.

export const SandboxSpec = Named(
  'SandboxSpecResponse',
  {
    resources: Resources,
    runtime: Named('SandboxRuntimeOptions', {
      ...runtimeOptions,
      hostname: Type.Optional(Nullable(Type.String())),
      metrics_sample_interval_ms: Type.Optional(Nullable(Int64({ default: 1000 }))),
      disable_metrics_sample: Type.Optional(Type.Boolean({ default: false })),
    }),
    env: Type.Array(EnvVar),
    labels: StringMap(),
    rlimits: Type.Array(
      Named('Rlimit', {
        resource: Words(
          [
            ...([
              'Cpu',
              'Fsize',
              'Data',
              'Stack',
              'Core',
              'Rss',
              'Nproc',
              'Nofile',
              'Memlock',
              'As',
            ] as const),
            ...(['Locks', 'Sigpending', 'Msgqueue', 'Nice', 'Rtprio', 'Rttime'] as const),
          ],
          { title: 'RlimitResource' },
        ),
        soft: Int64(),
        hard: Int64(),
      }),
    ),
    lifecycle: Lifecycle,
    mounts: Type.Array(SandboxMount),
    network: SandboxNetwork,
    image: Type.Optional(Nullable(Type.String())),
  },
  'What the sandbox was resolved to, without secret values, vault paths and volume ids.',
);
export type SandboxSpec = Static<typeof SandboxSpec>;

export const SandboxResponse = Named('SandboxResponse', {
  id: Uuid,
  org_id: Uuid,
  name: Type.String(),
  slug: Type.String(),
  status: SandboxStatus,
  ephemeral: Type.Boolean(),
  created_at: DateTime,
  last_failure_message: Type.Optional(Nullable(Type.String())),
  spec: Type.Optional(Nullable(SandboxSpec)),
  started_at: Type.Optional(Nullable(DateTime)),
  stopped_at: Type.Optional(Nullable(DateTime)),
  status_reason: Type.Optional(Nullable(SandboxStatusReason)),
});
export type SandboxResponse = Static<typeof SandboxResponse>;

export const PaginatedSandboxResponse = PageOf('PaginatedSandboxResponse', SandboxResponse);

// What is asked for.

const absolutePath = { description: 'Absolute path in the guest.' };
const mode = Type.Optional(Nullable(Int32({ maximum: 0o7777 })));

const Patch = Variants(
  'type',
  [
    Type.Object({
      type: Type.Literal('text'),
      path: Type.String(absolutePath),
      content: Type.String(),
      mode,
      replace: Type.Boolean(),
    }),
    Type.Object({
      type: Type.Literal('file'),
      path: Type.String(absolutePath),
      content: Type.Array(Int32({ maximum: 255 })),
      mode,
      replace: Type.Boolean(),
    }),
    Type.Object({
      type: Type.Literal('copy_file'),
      src: Type.String(),
      dst: Type.String(absolutePath),
      mode,
      replace: Type.Boolean(),
    }),
    Type.Object({
      type: Type.Literal('copy_dir'),
      src: Type.String(),
      dst: Type.String(absolutePath),
      replace: Type.Boolean(),
    }),
    Type.Object({
      type: Type.Literal('symlink'),
      target: Type.String(),
      link: Type.String(absolutePath),
      replace: Type.Boolean(),
    }),
    Type.Object({ type: Type.Literal('mkdir'), path: Type.String(absolutePath), mode }),
    Type.Object({ type: Type.Literal('remove'), path: Type.String(absolutePath) }),
    Type.Object({ type: Type.Literal('append'), path: Type.String(absolutePath), content: Type.String() }),
  ],
  { title: 'CloudPatch' },
);

const RegistrySelection = Variants(
  'mode',
  [
    Type.Object({ mode: Words(['auto', 'anonymous']) }),
    Type.Object({ mode: Type.Literal('specific'), credential_id: Uuid }),
    Type.Object({
      mode: Type.Literal('inline'),
      username: Type.String(),
      password: Type.String({ format: 'password' }),
    }),
  ],
  { title: 'RegistrySelection' },
);

const RLIMIT_NAMES = [
  ...(['cpu', 'fsize', 'data', 'stack', 'core', 'rss', 'nproc', 'nofile', 'memlock', 'as'] as const),
  ...(['locks', 'sigpending', 'msgqueue', 'nice', 'rtprio', 'rttime'] as const),
];

export const CreateSandboxRequest = Named(
  'CreateSandboxRequest',
  {
    name: Type.String({
      description:
        '1 to 128 of A-Z a-z 0-9 . - _, starting with a letter or digit; unique in the organization.',
    }),
    image: Named('CloudRootfsSource', {
      type: Type.Literal('oci'),
      reference: Type.String({ description: 'OCI image reference, such as `python:3.12`.' }),
    }),
    slug: Type.Optional(
      Nullable(
        Type.String({
          description:
            '3 to 63 of a-z 0-9 and single hyphens; unique across all organizations. Made when left out.',
        }),
      ),
    ),
    resources: Type.Optional(Resources),
    runtime: Type.Optional(
      Named(
        'CloudSandboxRuntimeOptions',
        {
          ...runtimeOptions,
          hostname: Type.Optional(
            Nullable(Type.String({ description: 'Name of the guest for itself. Its id when left out.' })),
          ),
        },
        'Unknown keys are accepted and ignored.',
      ),
    ),
    env: Type.Optional(Type.Array(EnvVar, { description: 'Of two entries with one key the last wins.' })),
    labels: Type.Optional(StringMap()),
    rlimits: Type.Optional(
      Type.Array(
        Named('CloudRlimit', {
          resource: Words(RLIMIT_NAMES, { title: 'CloudRlimitResource' }),
          soft: Int64(),
          hard: Int64(),
        }),
      ),
    ),
    mounts: Type.Optional(Type.Array(MountRequest)),
    patches: Type.Optional(Type.Array(Patch)),
    network: Type.Optional(NetworkRequest),
    init: Type.Optional(
      Nullable(
        Named('HandoffInit', {
          cmd: Type.String(),
          args: Type.Optional(Type.Array(Type.String())),
          env: Type.Optional(Type.Array(Type.Array(Type.String(), { minItems: 2, maxItems: 2 }))),
        }),
      ),
    ),
    pull_policy: Type.Optional(Words(['if_missing', 'always', 'never'], { title: 'CloudPullPolicy' })),
    security_profile: Type.Optional(Words(['default', 'restricted'], { title: 'SecurityProfile' })),
    lifecycle: Type.Optional(Lifecycle),
    registry: Type.Optional(Nullable(RegistrySelection)),
  },
  'Unknown keys are accepted and ignored; known ones are checked strictly.',
);
export type CreateSandboxRequest = Static<typeof CreateSandboxRequest>;

export const UpdateSandboxRequest = Named('UpdateSandboxRequest', {
  name: Type.Optional(Nullable(Type.String({ description: 'Unique in the organization.' }))),
  slug: Type.Optional(Nullable(Type.String({ description: 'Unique among all organizations.' }))),
  labels: Type.Optional(
    Nullable(
      StringMap({ description: 'Takes the place of all labels. Usage counts under them from now on.' }),
    ),
  ),
});
export type UpdateSandboxRequest = Static<typeof UpdateSandboxRequest>;
