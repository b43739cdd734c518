import { Type, type Static } from 'typebox';
import {
  DateTime,
  Field,
  Int32,
  Int64,
  Named,
  NoEffect,
  Nullable,
  restricting,
  StringMap,
  Uint64,
  Uuid,
  Variants,
  Words,
} from '../http/schema.js';
import { labelsForm } from '../http/labels-form.js';
import { envRequest } from './env-schema.js';
import { MountRequest, SandboxMount } from './mount-schema.js';
import { NetworkRequest, SandboxNetwork, UNKNOWN_FIELDS } from './network-schema.js';
import { HOSTNAME_FORM, NAME_FORM, SLUG_FORM } from './names.js';
import { RESTRICTIONS } from './restrictions.js';
import { CREATE_BODY_LIMIT, MAX_PATCH_BYTES, MAX_SPEC_BYTES, MOST } from './size-limits.js';
import { FLAT_SOURCE } from './flat-source-schema.js';

export const STATUSES = ['created', 'starting', 'running', 'stopping', 'stopped', 'failed'] as const;
export const SandboxStatus = Words([...STATUSES], {
  title: 'SandboxStatus',
  description: 'The lifecycle status of a sandbox. `docs/lifecycle.md` has the transitions.',
});
export type SandboxStatus = Static<typeof SandboxStatus>;

export const SandboxStatusReason = Words(['scheduling', 'insufficient_capacity'], {
  title: 'SandboxStatusReason',
  description:
    'The reason for which a sandbox is still `starting`: it waits for a worker, or no worker has room.',
});
export type SandboxStatusReason = Static<typeof SandboxStatusReason>;

export const StopReason = Words(
  [
    ...(['requested', 'idle', 'max_duration', 'quota', 'command', 'oom', 'disk_full', 'engine'] as const),
    ...(['lost', 'start_failed'] as const),
  ],
  {
    title: 'SandboxStopReason',
    description: 'Why the latest run ended. `docs/lifecycle.md` describes each reason.',
  },
);
export type StopReason = Static<typeof StopReason>;

export const SandboxCommand = Named(
  'SandboxCommand',
  {
    status: Words(['running', 'exited', 'killed', 'stopped', 'unknown'], {
      description:
        '`exited`: it ended by itself. `killed`: a signal ended it. `stopped`: it ended with its sandbox. `unknown`: the sandbox is of an earlier release, which keeps no record.',
    }),
    exit_code: Nullable(
      Type.Integer({
        format: 'int32',
        description: 'The exit code. 128 and the number of a signal that ended it.',
      }),
    ),
    signal: Nullable(
      Type.Integer({ format: 'int32', description: 'The number of the signal that ended it.' }),
    ),
    oom_killed: Nullable(
      Type.Boolean({
        description: 'Whether it was killed because the sandbox had no memory left. Null: unknown.',
      }),
    ),
    ended_at: Field(Nullable(DateTime), 'The time of its end, by the clock of the machine of the sandbox.'),
  },
  'The command of the latest run. A sandbox runs on after it, unless `lifecycle.ends_with_command` is set.',
);
export type SandboxCommand = Static<typeof SandboxCommand>;

const EnvVar = Named(
  'EnvVar',
  {
    key: Type.String({ description: 'The name of the variable.' }),
    value: Type.String({ description: 'The value of the variable. It can be empty.' }),
    secret: Type.Optional(
      Type.Boolean({ description: 'An extension: true if the value is sealed, and shown as `***`.' }),
    ),
  },
  'An environment variable.',
);

const Resources = Named(
  'CloudSandboxResources',
  {
    vcpus: Type.Optional(
      Int32({
        default: 1,
        description:
          'The number of virtual CPUs. 0: it shares the CPU, with a small weight and ceiling, and uses no vCPU-seconds.',
      }),
    ),
    memory_mib: Type.Optional(Int32({ default: 512, description: 'The memory of the guest in MiB.' })),
    disk_size_mib: Type.Optional(
      Nullable(Int32({ description: 'The size of the writable disk in MiB. Null: no limit.' })),
    ),
  },
  'The CPU, memory and disk of a sandbox.',
);

const LogLevel = Words(['error', 'warn', 'info', 'debug', 'trace'], {
  title: 'SandboxLogLevel',
  description: 'The least severe level that the guest runtime logs.',
});

/** Requests have bounds; answers show whatever is stored. */
const runtimeOptions = (words: { maxItems?: number } = {}, scripts: { maxProperties?: number } = {}) => ({
  cmd: Type.Optional(
    Nullable(
      Type.Array(Type.String(), {
        ...words,
        description:
          'The command to launch once at each start. Its output is the log. Null: none is launched.',
      }),
    ),
  ),
  entrypoint: Type.Optional(
    Nullable(
      Type.Array(Type.String(), {
        ...words,
        description: 'The words before `cmd`. Null: the entrypoint of the image.',
      }),
    ),
  ),
  user: Type.Optional(
    Nullable(
      Type.String({ description: 'The user of the guest, by name or id. Null: the user of the image.' }),
    ),
  ),
  workdir: Type.Optional(
    Nullable(Type.String({ description: 'The working directory in the guest. Null: the one of the image.' })),
  ),
  shell: Type.Optional(
    Nullable(Type.String({ description: 'The shell for scripts and interactive sessions.' })),
  ),
  scripts: Type.Optional(
    StringMap({ ...scripts, description: 'The scripts to place in the guest, by name.' }),
  ),
  log_level: Type.Optional(Field(Nullable(LogLevel), 'The log level of the guest runtime.')),
});

const METRICS_OPTIONS = {
  metrics_sample_interval_ms: Type.Optional(
    Nullable(
      Int64({
        default: 1000,
        description: 'The least milliseconds between two samples of metrics. Null: there are no samples.',
      }),
    ),
  ),
  disable_metrics_sample: Type.Optional(
    Type.Boolean({
      default: false,
      description: 'Whether sampling is off, whatever the interval.',
    }),
  ),
};

const Lifecycle = Named(
  'SandboxPolicy',
  {
    ephemeral: Type.Optional(
      Type.Boolean({ default: false, description: 'Whether the sandbox is removed when its run ends.' }),
    ),
    idle_timeout_secs: Type.Optional(
      Nullable(Int64({ description: 'The seconds of idleness after which it is stopped. Null: never.' })),
    ),
    max_duration_secs: Type.Optional(
      Nullable(Int64({ description: 'The longest run in seconds. Null: no limit.' })),
    ),
    ends_with_command: Type.Optional(
      Type.Boolean({
        description:
          'An extension for batch work. The run ends when `runtime.cmd` ends, and its exit code is the outcome: 0 is `stopped`, any other `failed`. Default: false, the sandbox stays up.',
      }),
    ),
  },
  'The rules by which the service ends a sandbox.',
);

const rlimitValues = {
  soft: Uint64({ description: 'The limit in force. A process can raise it up to `hard`.' }),
  hard: Uint64({ description: 'The ceiling of `soft`. 18446744073709551615 is no limit.' }),
};

// Answers:

export const SandboxSpec = Named(
  'SandboxSpecResponse',
  {
    resources: Resources,
    runtime: Named(
      'SandboxRuntimeOptions',
      {
        ...runtimeOptions(),
        hostname: Type.Optional(
          Nullable(Type.String({ description: 'The host name of the guest. Null: the id of the sandbox.' })),
        ),
        ...METRICS_OPTIONS,
      },
      'The options of the processes in the guest.',
    ),
    env: Type.Array(EnvVar, { description: 'The environment variables of the guest.' }),
    labels: StringMap({ description: 'The labels of the sandbox.' }),
    rlimits: Type.Array(
      Named(
        'Rlimit',
        {
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
            { title: 'RlimitResource', description: 'The resource of a POSIX limit.' },
          ),
          ...rlimitValues,
        },
        'A POSIX resource limit.',
      ),
      { description: 'The POSIX resource limits of the guest.' },
    ),
    lifecycle: Lifecycle,
    mounts: Type.Array(SandboxMount, { description: 'The mounts of the guest.' }),
    network: SandboxNetwork,
    image: Type.Optional(
      Nullable(Type.String({ description: 'The OCI image that the sandbox starts from.' })),
    ),
  },
  'The specification with all defaults filled in, without secret values, vault paths and volume ids.',
);
export type SandboxSpec = Static<typeof SandboxSpec>;

// Requests:

const guestPath = (description: string) => Type.String({ description });
const mode = Type.Optional(
  Nullable(
    Int32({
      maximum: 0o7777,
      description: 'The permission bits as a number, such as 420 for `rw-r--r--`. Null: the default.',
    }),
  ),
);
const replace = Type.Boolean({
  description: 'Whether to replace an existing file. If false, it is an error.',
});
const source = Type.String({
  description: 'The source on the machine of the client. The service refuses it.',
});

const Patch = Variants(
  'type',
  [
    Type.Object({
      type: Type.Literal('text', { description: 'Writes a text file.' }),
      path: guestPath('The absolute path of the file in the guest.'),
      content: Type.String({ description: 'The text of the file.' }),
      mode,
      replace,
    }),
    Type.Object({
      type: Type.Literal('file', { description: 'Writes a file of bytes.' }),
      path: guestPath('The absolute path of the file in the guest.'),
      content: Type.Union(
        [
          Type.Array(Int32({ maximum: 255 }), { description: 'The bytes as numbers.' }),
          Type.String({ description: 'The bytes as base64.' }),
        ],
        { description: 'The bytes of the file: a list of numbers, or base64.' },
      ),
      mode,
      replace,
    }),
    Type.Object({
      type: Type.Literal('copy_file', { description: 'Copies a file from the machine of the client.' }),
      src: source,
      dst: guestPath('The absolute path of the copy in the guest.'),
      mode,
      replace,
    }),
    Type.Object({
      type: Type.Literal('copy_dir', { description: 'Copies a directory from the machine of the client.' }),
      src: source,
      dst: guestPath('The absolute path of the copy in the guest.'),
      replace,
    }),
    Type.Object({
      type: Type.Literal('symlink', { description: 'Makes a symbolic link.' }),
      target: Type.String({ description: 'The path that the link leads to.' }),
      link: guestPath('The absolute path of the link in the guest.'),
      replace,
    }),
    Type.Object({
      type: Type.Literal('mkdir', { description: 'Makes a directory.' }),
      path: guestPath('The absolute path of the directory in the guest.'),
      mode,
    }),
    Type.Object({
      type: Type.Literal('remove', { description: 'Removes a file or directory.' }),
      path: guestPath('The absolute path in the guest to remove.'),
    }),
    Type.Object({
      type: Type.Literal('append', { description: 'Appends text to an existing file.' }),
      path: guestPath('The absolute path of the file in the guest.'),
      content: Type.String({ description: 'The text to append.' }),
    }),
  ],
  { title: 'CloudPatch', description: 'A change to the files of the guest before its first start.' },
);

const RegistrySelection = Variants(
  'mode',
  [
    Type.Object({
      mode: Words(['auto', 'anonymous'], { description: 'The image is pulled without credentials.' }),
    }),
    Type.Object({
      mode: Type.Literal('specific', { description: 'The image is pulled with stored credentials.' }),
      credential_id: Field(Uuid, 'The id of the stored credentials.'),
    }),
    Type.Object({
      mode: Type.Literal('inline', { description: 'The image is pulled with the credentials given here.' }),
      username: Type.String({ description: 'The user name at the registry.' }),
      password: Type.String({
        format: 'password',
        description: 'The password at the registry. It is kept only until the image is pulled.',
      }),
    }),
  ],
  { title: 'RegistrySelection', description: 'The credentials with which the image is pulled.' },
);

export const RLIMIT_NAMES = [
  ...(['cpu', 'fsize', 'data', 'stack', 'core', 'rss', 'nproc', 'nofile', 'memlock', 'as'] as const),
  ...(['locks', 'sigpending', 'msgqueue', 'nice', 'rtprio', 'rttime'] as const),
];

export const CreateSandboxRequest = Named(
  'CreateSandboxRequest',
  {
    name: Type.String({
      ...NAME_FORM,
      description:
        'The name: 1 to 128 of A-Z a-z 0-9 . - _, beginning with a letter or digit, unique in the organization.',
    }),
    image: Named(
      'CloudRootfsSource',
      {
        type: Type.Literal('oci', { description: 'The kind of the source. There are only OCI images.' }),
        reference: Type.String({
          description: 'The reference of the OCI image, such as `python:3.12`.',
          examples: ['python:3.12'],
        }),
      },
      'The image that a sandbox starts from. Instead of it, the body may have `source` with `oci`, and `reference`.',
    ),
    slug: Type.Optional(
      Nullable(
        Type.String({
          ...SLUG_FORM,
          description:
            'The slug: 3 to 63 of a-z 0-9 and single hyphens, unique in the installation. The service makes one if it is left out.',
        }),
      ),
    ),
    resources: Type.Optional(Resources),
    runtime: Type.Optional(
      Named(
        'CloudSandboxRuntimeOptions',
        {
          ...runtimeOptions({ maxItems: MOST.words }, { maxProperties: MOST.scripts }),
          hostname: Type.Optional(
            Nullable(
              Type.String({
                ...HOSTNAME_FORM,
                description: 'The host name of the guest. Default: the id of the sandbox.',
              }),
            ),
          ),
          log_level: Type.Optional(
            NoEffect(Nullable(LogLevel), 'nothing of the service writes a log inside a sandbox'),
          ),
          ...METRICS_OPTIONS,
        },
        `The options of the processes in the guest. ${UNKNOWN_FIELDS}`,
      ),
    ),
    env: Type.Optional(
      envRequest(
        'The environment variables of the guest: a list of entries, or a map. Of two entries with one key the last applies.',
      ),
    ),
    labels: Type.Optional(
      StringMap({ ...labelsForm(), description: 'The labels of the sandbox. Default: none.' }),
    ),
    rlimits: Type.Optional(
      Type.Array(
        Named(
          'CloudRlimit',
          {
            resource: Words(RLIMIT_NAMES, {
              title: 'CloudRlimitResource',
              description: 'The resource of a POSIX limit.',
            }),
            ...rlimitValues,
          },
          'A POSIX resource limit.',
        ),
        { maxItems: RLIMIT_NAMES.length, description: 'The POSIX resource limits of the guest.' },
      ),
    ),
    mounts: Type.Optional(
      Type.Array(MountRequest, { maxItems: MOST.mounts, description: 'The mounts of the guest.' }),
    ),
    patches: Type.Optional(
      Type.Array(Patch, {
        maxItems: MOST.patches,
        description: `The changes to files before the first start, in their order. Their contents have ${MAX_PATCH_BYTES} bytes at most.`,
      }),
    ),
    network: Type.Optional(NetworkRequest),
    init: Type.Optional(
      Field(
        Nullable(
          Named(
            'HandoffInit',
            {
              cmd: Type.String({ description: 'The program: an absolute path in the guest, or `auto`.' }),
              args: Type.Optional(
                Type.Array(Type.String(), {
                  maxItems: MOST.words,
                  description: 'The arguments of the program.',
                }),
              ),
              env: Type.Optional(
                Type.Array(Type.Array(Type.String(), { minItems: 2, maxItems: 2 }), {
                  maxItems: MOST.env,
                  description: 'The environment of the program, as pairs of key and value.',
                }),
              ),
            },
            'A program of the guest that becomes its process 1.',
          ),
        ),
        'The program of the guest that becomes its process 1. Default: none.',
      ),
    ),
    pull_policy: Type.Optional(
      Words(['if_missing', 'always', 'never'], {
        title: 'CloudPullPolicy',
        description: 'When the image is pulled. Default: `if_missing`.',
      }),
    ),
    security_profile: Type.Optional(
      Words(['default', 'restricted'], {
        title: 'SecurityProfile',
        description: 'The privileges of the guest. `restricted` has no capabilities. Default: `default`.',
      }),
    ),
    lifecycle: Type.Optional(Lifecycle),
    registry: Type.Optional(
      Field(Nullable(RegistrySelection), 'The credentials with which the image is pulled. Default: none.'),
    ),
  },
  `The sandbox to create. All fields but \`patches\` have ${MAX_SPEC_BYTES} bytes of JSON at most, and the body ${CREATE_BODY_LIMIT}. ${UNKNOWN_FIELDS}`,
  { ...restricting(RESTRICTIONS), ...FLAT_SOURCE },
);
export type CreateSandboxRequest = Static<typeof CreateSandboxRequest>;
