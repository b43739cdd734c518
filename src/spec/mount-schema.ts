/** Mounts of requests and of answers (contract section 2.2). Answers have no host path and no volume id. */
import { Type, type Static } from 'typebox';
import { Int32, Named, Nullable, Variants, Words } from '../http/schema.js';

const MountOptions = Named(
  'MountOptions',
  {
    nodev: Type.Optional(
      Type.Boolean({ default: false, description: 'Whether device files on the mount are ignored.' }),
    ),
    noexec: Type.Optional(
      Type.Boolean({
        default: false,
        description: 'Whether programs on the mount cannot be run. Interpreters can still read them.',
      }),
    ),
    nosuid: Type.Optional(
      Type.Boolean({
        default: false,
        description: 'Whether setuid and setgid bits on the mount are ignored.',
      }),
    ),
    readonly: Type.Optional(
      Type.Boolean({ default: false, description: 'Whether writes of the guest fail.' }),
    ),
  },
  'The flags of a mount.',
);

const HostPermissions = Words(['private', 'mirror'], {
  title: 'HostPermissions',
  description:
    'Whether permissions that the guest sets stay private or are mirrored to the host. Default: `private`.',
});
const StatVirtualization = Words(['strict', 'relaxed', 'off'], {
  title: 'StatVirtualization',
  description: 'How far the owners and modes that the guest sees are virtual. Default: `strict`.',
});

const guest = Type.String({ description: 'The absolute path of the mount in the guest.' });
const host = Type.String({ minLength: 1, description: 'The path in the host volume of the organization.' });
const quota_mib = Type.Optional(
  Nullable(Int32({ description: 'The most that the guest can write, in MiB. Null: no limit.' })),
);
const size_mib = Type.Optional(
  Nullable(Int32({ description: 'The size of the file system in MiB. Null: the default of the runtime.' })),
);
const fstype = Type.Optional(
  Nullable(Type.String({ description: 'The file system of the image. Null: it is detected.' })),
);
const BIND = { description: 'Shows a part of the host volume.' };
const NAMED = { description: 'Shows a managed volume.' };
const TMPFS = { description: 'Makes an empty file system in memory.' };
const DISK_IMAGE = { description: 'Shows the file system of a disk image in the host volume.' };
const FORMAT = 'The format of a disk image.';

const requestOptions = { options: Type.Optional(MountOptions) };
const requestSharing = {
  ...requestOptions,
  stat_virtualization: Type.Optional(StatVirtualization),
  host_permissions: Type.Optional(HostPermissions),
};

export const MountRequest = Variants(
  'type',
  [
    Type.Object({ type: Type.Literal('bind', BIND), host, guest, ...requestSharing, quota_mib }),
    Type.Object({
      type: Type.Literal('named', NAMED),
      name: Type.String({ minLength: 1, description: 'The name of the volume.' }),
      guest,
      ...requestSharing,
    }),
    Type.Object({ type: Type.Literal('tmpfs', TMPFS), guest, ...requestOptions, size_mib }),
    Type.Object({
      type: Type.Literal('disk_image', DISK_IMAGE),
      host,
      guest,
      format: Words(['qcow2', 'raw', 'vmdk'], { title: 'CloudDiskImageFormat', description: FORMAT }),
      fstype,
      ...requestOptions,
    }),
  ],
  { title: 'CloudVolumeMount', description: 'A mount to make in the guest.' },
);
export type MountRequest = Static<typeof MountRequest>;
export type VolumeMountRequest = Extract<MountRequest, { type: 'bind' | 'named' }>;

/** Whether it shows a directory of a volume. */
export function isVolumeMount<M extends MountRequest>(mount: M): mount is Extract<M, VolumeMountRequest> {
  return mount.type === 'bind' || mount.type === 'named';
}

const sharing = {
  options: MountOptions,
  stat_virtualization: StatVirtualization,
  host_permissions: HostPermissions,
};

export const SandboxMount = Variants(
  'type',
  [
    Type.Object({ type: Type.Literal('Bind', BIND), guest, ...sharing, quota_mib }),
    Type.Object({
      type: Type.Literal('Named', NAMED),
      name: Type.Optional(Type.String({ description: 'The name of the volume.' })),
      guest,
      ...sharing,
    }),
    Type.Object({ type: Type.Literal('Tmpfs', TMPFS), guest, options: MountOptions, size_mib }),
    Type.Object({
      type: Type.Literal('DiskImage', DISK_IMAGE),
      guest,
      format: Words(['Qcow2', 'Raw', 'Vmdk'], { title: 'DiskImageFormat', description: FORMAT }),
      options: MountOptions,
      fstype,
    }),
  ],
  { title: 'SandboxMountResponse', description: 'A mount of the guest, without host paths and volume ids.' },
);
export type SandboxMount = Static<typeof SandboxMount>;
