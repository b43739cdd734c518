/** Mounts: what is asked for, and what is shown (contract section 2.2). The shown ones name no host path and no volume. */
import { Type, type Static } from 'typebox';
import { Int32, Named, Nullable, Variants, Words } from '../http/schema.js';

const MountOptions = Named('MountOptions', {
  nodev: Type.Optional(Type.Boolean({ default: false })),
  noexec: Type.Optional(Type.Boolean({ default: false })),
  nosuid: Type.Optional(Type.Boolean({ default: false })),
  readonly: Type.Optional(Type.Boolean({ default: false })),
});

const HostPermissions = Words(['private', 'mirror'], { title: 'HostPermissions' });
const StatVirtualization = Words(['strict', 'relaxed', 'off'], { title: 'StatVirtualization' });

const guest = Type.String({ description: 'Absolute path in the guest.' });
const host = Type.String({ minLength: 1, description: "Path inside the organization's host volume." });
const quota_mib = Type.Optional(Nullable(Int32()));
const size_mib = Type.Optional(Nullable(Int32()));
const fstype = Type.Optional(Nullable(Type.String()));

const requestOptions = { options: Type.Optional(MountOptions) };
const requestSharing = {
  ...requestOptions,
  stat_virtualization: Type.Optional(StatVirtualization),
  host_permissions: Type.Optional(HostPermissions),
};

export const MountRequest = Variants(
  'type',
  [
    Type.Object({ type: Type.Literal('bind'), host, guest, ...requestSharing, quota_mib }),
    Type.Object({
      type: Type.Literal('named'),
      name: Type.String({ minLength: 1 }),
      guest,
      ...requestSharing,
    }),
    Type.Object({ type: Type.Literal('tmpfs'), guest, ...requestOptions, size_mib }),
    Type.Object({
      type: Type.Literal('disk_image'),
      host,
      guest,
      format: Words(['qcow2', 'raw', 'vmdk'], { title: 'CloudDiskImageFormat' }),
      fstype,
      ...requestOptions,
    }),
  ],
  { title: 'CloudVolumeMount' },
);
export type MountRequest = Static<typeof MountRequest>;

const sharing = {
  options: MountOptions,
  stat_virtualization: StatVirtualization,
  host_permissions: HostPermissions,
};

export const SandboxMount = Variants(
  'type',
  [
    Type.Object({ type: Type.Literal('Bind'), guest, ...sharing, quota_mib }),
    Type.Object({ type: Type.Literal('Named'), guest, ...sharing }),
    Type.Object({ type: Type.Literal('Tmpfs'), guest, options: MountOptions, size_mib }),
    Type.Object({
      type: Type.Literal('DiskImage'),
      guest,
      format: Words(['Qcow2', 'Raw', 'Vmdk'], { title: 'DiskImageFormat' }),
      options: MountOptions,
      fstype,
    }),
  ],
  { title: 'SandboxMountResponse' },
);
export type SandboxMount = Static<typeof SandboxMount>;
