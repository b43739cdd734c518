import type { EngineAbilities } from './engine-abilities.js';
import { networkRequirements } from './network-requirements.js';
import type { Requirement } from './requirement.js';
import type { MountRequest } from './mount-schema.js';
import type { CreateSandboxRequest } from './schema.js';

type VolumeMountRequest = Extract<MountRequest, { type: 'bind' | 'named' }>;

export function requiredCapabilities(request: CreateSandboxRequest): Requirement[] {
  const { resources, runtime, network, lifecycle, registry } = request;
  const requirements: (Requirement | false)[] = [
    resources?.disk_size_mib != null && {
      capability: 'disk_size',
      field: 'resources.disk_size_mib',
      what: 'limit the size of the disk',
      remedy:
        'leave resources.disk_size_mib out, or let the operator run "sandkeep doctor", which shows how it can',
    },
    runtime?.user != null &&
      !KNOWN_USER.test(runtime.user) && {
        capability: 'user_names',
        field: 'runtime.user',
        what: 'look the name of a user up in the image',
        remedy: `give numbers, such as 1000:1000; "id ${runtime.user.split(':')[0]}" in a sandbox of the image shows them`,
      },
    (runtime?.cmd ?? []).length > 0 &&
      runtime?.entrypoint == null && {
        capability: 'image_entrypoint',
        field: 'runtime.entrypoint',
        what: 'read the entrypoint of the image',
        remedy: 'give it here, or [] for none',
      },
    (runtime?.hostname ?? '').includes('.') && {
      capability: 'hostname_domain',
      field: 'runtime.hostname',
      what: 'set a host name with a domain',
      remedy: 'give a name without dots',
    },
    ...(request.env ?? []).flatMap(envRequirements),
    ...(request.env ?? []).flatMap(secretRequirements),
    Object.keys(runtime?.scripts ?? {}).length > 0 && {
      capability: 'scripts',
      field: 'runtime.scripts',
      what: 'place scripts in the guest',
    },
    (request.patches ?? []).length > 0 && {
      capability: 'patches',
      field: 'patches',
      what: 'patch the root filesystem',
    },
    request.init != null && {
      capability: 'init',
      field: 'init',
      what: 'hand process 1 to a program of the guest',
    },
    ...(request.rlimits ?? []).flatMap(limitRequirements),
    ...(request.patches ?? []).flatMap(patchRequirements),
    ...(request.mounts ?? []).flatMap(mountRequirements),
    ...networkRequirements(network ?? {}),
    lifecycle?.idle_timeout_secs != null && {
      capability: 'idle_timeout',
      field: 'lifecycle.idle_timeout_secs',
      what: 'notice that a sandbox is idle',
    },
    registry?.mode === 'inline' && {
      capability: 'registry_credentials',
      field: 'registry.mode',
      what: 'log in to a registry',
    },
    registry?.mode === 'specific' && {
      capability: 'stored_credentials',
      field: 'registry.mode',
      what: 'find stored credentials: there is no store of them, so send them inline',
    },
  ];
  return requirements.filter((requirement) => requirement !== false);
}

/** Numbers, and the name that has the number 0 everywhere. */
const KNOWN_USER = /^(?:\d{1,10}|root)(?::(?:\d{1,10}|root))?$/;
const PORTABLE_ENV_NAME = /^[A-Za-z_.-][A-Za-z0-9_.-]*$/;

function envRequirements(
  { key }: NonNullable<CreateSandboxRequest['env']>[number],
  index: number,
): Requirement[] {
  if (PORTABLE_ENV_NAME.test(key)) return [];
  const what = 'set an environment variable with this name';
  const remedy = 'use letters, digits, "_", "-" and ".", and no digit first';
  return [{ capability: 'any_env_name', field: `env[${index}].key`, what, remedy }];
}

function secretRequirements(
  { secret = false }: NonNullable<CreateSandboxRequest['env']>[number],
  index: number,
): Requirement[] {
  if (!secret) return [];
  return [{ capability: 'secret_env', field: `env[${index}].secret`, what: 'keep a variable secret' }];
}

/** A `nice` limit of N permits priorities down to 20 - N, so a limit above 20 permits negative ones. */
const ORDINARY_NICE = 20;

function limitRequirements(
  { resource, hard }: NonNullable<CreateSandboxRequest['rlimits']>[number],
  index: number,
): Requirement[] {
  const field = `rlimits[${index}]`;
  const limits: Requirement = { capability: 'rlimits', field, what: 'set the limits of processes' };
  if (resource === 'as') return [limits, { capability: 'rlimit_as', field, what: 'limit the address space' }];
  const above = resource === 'rtprio' ? 0 : resource === 'nice' ? ORDINARY_NICE : Infinity;
  if (hard <= above) return [limits];
  const what = 'let a sandbox take the processors from everything else on the machine';
  return [limits, { capability: 'rlimit_priority', field, what }];
}

export function unmetRequirement(
  request: CreateSandboxRequest,
  engine: EngineAbilities,
): Requirement | undefined {
  return requiredCapabilities(request).find(({ capability }) => !engine.capabilities.has(capability));
}

/** The container engine creates these at each start. */
const ENGINE_FILES = new Set(['/etc/hosts', '/etc/hostname', '/etc/resolv.conf']);

function patchRequirements(
  patch: NonNullable<CreateSandboxRequest['patches']>[number],
  index: number,
): Requirement[] {
  const field = `patches[${index}]`;
  const path = patch.type === 'symlink' ? patch.link : 'path' in patch ? patch.path : patch.dst;
  const requirements: Requirement[] = [];
  if (patch.type === 'remove') {
    requirements.push({ capability: 'patch_remove', field, what: 'remove what is in the image' });
  }
  if (ENGINE_FILES.has(path)) {
    const what = `patch ${path}, which it makes itself at each start`;
    requirements.push({ capability: 'patch_engine_files', field, what });
  }
  return requirements;
}

function mountRequirements(mount: MountRequest, index: number): Requirement[] {
  const field = `mounts[${index}]`;
  switch (mount.type) {
    case 'tmpfs':
      return [{ capability: 'tmpfs', field, what: 'mount a tmpfs' }, ...tmpfsRequirements(mount, field)];
    case 'disk_image':
      return [{ capability: 'disk_images', field, what: 'mount a disk image' }];
    case 'named':
      return [
        { capability: 'named_volumes', field, what: 'mount a named volume' },
        ...sharingRequirements(mount, field),
      ];
    case 'bind': {
      const requirements: Requirement[] = [
        { capability: 'bind_mounts', field, what: 'mount a folder of the host volume' },
        ...sharingRequirements(mount, field),
      ];
      if (mount.quota_mib != null) {
        const what = 'limit what is written through a mount';
        requirements.push({ capability: 'mount_quota', field: `${field}.quota_mib`, what });
      }
      return requirements;
    }
  }
}

function tmpfsRequirements(
  { options }: Extract<MountRequest, { type: 'tmpfs' }>,
  field: string,
): Requirement[] {
  const flag = (['noexec', 'nosuid', 'nodev'] as const).find((name) => options?.[name] === true);
  if (flag === undefined) return [];
  const what = `enforce ${flag} on a tmpfs`;
  return [{ capability: 'tmpfs_flags', field: `${field}.options.${flag}`, what }];
}

function sharingRequirements(
  { options, stat_virtualization, host_permissions }: VolumeMountRequest,
  field: string,
): Requirement[] {
  const flag = (['noexec', 'nosuid', 'nodev'] as const).find((name) => options?.[name] === true);
  const requirements: (Requirement | false)[] = [
    flag !== undefined && {
      capability: 'mount_flags',
      field: `${field}.options.${flag}`,
      what: `enforce ${flag} on the mount of a volume`,
    },
    (stat_virtualization ?? 'strict') !== 'strict' && {
      capability: 'stat_virtualization',
      field: `${field}.stat_virtualization`,
      what: 'change how owners and modes are shown',
    },
    (host_permissions ?? 'private') !== 'private' && {
      capability: 'host_permissions',
      field: `${field}.host_permissions`,
      what: 'mirror permissions to the host',
    },
  ];
  return requirements.filter((requirement) => requirement !== false);
}
