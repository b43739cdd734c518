import { Type, type Static } from 'typebox';
import { DateTime, Named, Nullable, Uuid } from '../http/schema.js';

const quantity = Type.Number({ format: 'double' });

export const SandboxUsage = Named('UsageBreakdown', {
  rows: Type.Array(
    Named('SandboxDailyUsage', {
      day: DateTime,
      sandbox_id: Uuid,
      vcpu_seconds: quantity,
      mem_mib_seconds: quantity,
      disk_mib_seconds: quantity,
    }),
  ),
  sandboxes: Type.Array(Named('SandboxIdentity', { id: Uuid, name: Type.String(), slug: Type.String() })),
});
export type SandboxUsage = Static<typeof SandboxUsage>;

export const StorageUsage = Named('StorageBreakdown', {
  rows: Type.Array(Named('StorageDailyUsage', { day: DateTime, volume_id: Uuid, mib_seconds: quantity })),
  volumes: Type.Array(Named('VolumeIdentity', { id: Uuid, name: Type.Optional(Nullable(Type.String())) })),
});
export type StorageUsage = Static<typeof StorageUsage>;
