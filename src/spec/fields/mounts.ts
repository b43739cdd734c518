import { Type } from 'typebox';
import type { EngineAbilities } from '../engine-abilities.js';
import { field, type Requirement } from '../field.js';
import { checkGuestPath } from '../guest-path.js';
import { isVolumeMount, MountRequest, SandboxMount, type VolumeMountRequest } from '../mount-schema.js';
import { refuse } from '../refuse.js';
import type { MountVolumes, RunMount } from '../run-spec.js';
import { capitalized } from '../show-words.js';
import { MOST } from '../size-limits.js';

/** The kernel's file systems, which isolate the guest from the host. */
const KERNEL = ['/proc/', '/sys/', '/dev/'];
const FLAGS = ['noexec', 'nosuid', 'nodev'] as const;

export const mounts = field({
  schema: Type.Array(MountRequest, { maxItems: MOST.mounts, description: 'The mounts of the guest.' }),
  answer: Type.Array(SandboxMount, { description: 'The mounts of the guest.' }),
  default: [],
  restricts: true,
  check: checkMounts,
  requires: (asked) => asked.flatMap(requirementsOf),
  show: (asked) => asked.map(showMount),
  run: (asked, _, volumes) => ({ mounts: withVolumes(asked, volumes) }),
});

const isDiskImage = ({ type }: MountRequest) => type === 'disk_image';

function checkMounts(
  asked: readonly MountRequest[],
  _: unknown,
  { name, bounds: { mountedVolumes, diskImages } }: EngineAbilities,
): void {
  refuseMore(
    asked,
    isVolumeMount,
    mountedVolumes,
    `the ${name} runtime mounts at most ${mountedVolumes} volumes`,
  );
  refuseMore(asked, isDiskImage, diskImages, `the ${name} runtime mounts at most ${diskImages} disk images`);
  const guests = new Set<string>();
  const images = new Set<string>();
  for (const [index, mount] of asked.entries()) {
    const at = `mounts[${index}]`;
    checkGuestPath(mount.guest, `${at}.guest`);
    const kernel = KERNEL.find((path) => `${mount.guest}/`.startsWith(path));
    if (kernel) refuse(`${at}.guest`, `${at}.guest is at or under ${kernel}, which is the kernel's`);
    if (guests.has(mount.guest)) refuse(`${at}.guest`, `two mounts are at ${mount.guest}`);
    guests.add(mount.guest);
    if (mount.type === 'bind' || mount.type === 'disk_image') checkHostPath(mount.host, `${at}.host`);
    if (mount.type === 'disk_image') {
      if (images.has(mount.host)) refuse(`${at}.host`, 'two mounts are of one disk image');
      images.add(mount.host);
    }
    if (isVolumeMount(mount) && mount.stat_virtualization === 'off') {
      if (mount.host_permissions === 'mirror') {
        const message = 'host_permissions mirror needs stat_virtualization strict or relaxed';
        refuse(`${at}.host_permissions`, message);
      }
    }
    if (mount.type === 'tmpfs' && mount.size_mib === 0)
      refuse(`${at}.size_mib`, 'a tmpfs has at least 1 MiB');
  }
}

function refuseMore(
  asked: readonly MountRequest[],
  isCounted: (mount: MountRequest) => boolean,
  most: number | undefined,
  message: string,
): void {
  const counted = asked.flatMap((mount, index) => (isCounted(mount) ? [index] : []));
  if (most !== undefined && counted.length > most) refuse(`mounts[${counted[most]}]`, message);
}

function checkHostPath(path: string, at: string): void {
  if (path.split('/').includes('..')) refuse(at, `${at} must stay inside the host volume, without ".."`);
  if (/[:;,]/.test(path)) refuse(at, `${at} must not have : ; or ,`);
}

function requirementsOf(mount: MountRequest, index: number): (Requirement | false)[] {
  const at = `mounts[${index}]`;
  switch (mount.type) {
    case 'tmpfs':
      return [
        { capability: 'tmpfs', field: at, what: 'mount a tmpfs' },
        flagRequirement(mount, at, 'tmpfs_flags', 'a tmpfs'),
      ];
    case 'disk_image':
      return [{ capability: 'disk_images', field: at, what: 'mount a disk image' }];
    case 'named':
      return [
        { capability: 'named_volumes', field: at, what: 'mount a named volume' },
        ...sharingRequirements(mount, at),
      ];
    case 'bind':
      return [
        { capability: 'bind_mounts', field: at, what: 'mount a folder of the host volume' },
        ...sharingRequirements(mount, at),
        mount.quota_mib != null && {
          capability: 'mount_quota',
          field: `${at}.quota_mib`,
          what: 'limit what is written through a mount',
          remedy: 'leave it out, and give the volume a cap instead (capacity_gib)',
        },
      ];
  }
}

function flagRequirement(
  { options }: MountRequest,
  at: string,
  capability: 'tmpfs_flags' | 'mount_flags',
  of: string,
): Requirement | false {
  const flag = FLAGS.find((name) => options?.[name] === true);
  return (
    flag !== undefined && { capability, field: `${at}.options.${flag}`, what: `enforce ${flag} on ${of}` }
  );
}

function sharingRequirements(mount: VolumeMountRequest, at: string): (Requirement | false)[] {
  const { stat_virtualization = 'strict', host_permissions = 'private' } = mount;
  return [
    flagRequirement(mount, at, 'mount_flags', 'the mount of a volume'),
    stat_virtualization !== 'strict' && {
      capability: 'stat_virtualization',
      field: `${at}.stat_virtualization`,
      what: 'change how owners and modes are shown',
    },
    host_permissions !== 'private' && {
      capability: 'host_permissions',
      field: `${at}.host_permissions`,
      what: 'mirror permissions to the host',
    },
  ];
}

function showMount(mount: MountRequest): SandboxMount {
  const { guest } = mount;
  const { nodev = false, noexec = false, nosuid = false, readonly = false } = mount.options ?? {};
  const options = { nodev, noexec, nosuid, readonly };
  switch (mount.type) {
    case 'bind':
      return { type: 'Bind', guest, options, ...sharingOf(mount), quota_mib: mount.quota_mib ?? null };
    case 'named':
      return { type: 'Named', name: mount.name, guest, options, ...sharingOf(mount) };
    case 'tmpfs':
      return { type: 'Tmpfs', guest, options, size_mib: mount.size_mib ?? null };
    case 'disk_image': {
      const format = capitalized(mount.format);
      return { type: 'DiskImage', guest, format, options, fstype: mount.fstype ?? null };
    }
  }
}

function sharingOf({ stat_virtualization = 'strict', host_permissions = 'private' }: VolumeMountRequest) {
  return { stat_virtualization, host_permissions };
}

function withVolumes(asked: readonly MountRequest[], { named, host }: MountVolumes): RunMount[] {
  return asked.map((mount) => {
    switch (mount.type) {
      case 'named':
        return { ...mount, volumeId: named.get(mount.name)! };
      case 'bind':
      case 'disk_image':
        return { ...mount, volumeId: host! };
      case 'tmpfs':
        return mount;
    }
  });
}
