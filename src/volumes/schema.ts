import { Type, type Static } from 'typebox';
import { DateTime, Int32, Int64, Named, Nullable, StringMap, Uuid, Words } from '../http/schema.js';

const VolumeType = Words(['block'], { title: 'VolumeType' });

export const VolumeResponse = Named('VolumeResponse', {
  id: Uuid,
  kind: Words(['host', 'managed'], { title: 'VolumeKind' }),
  name: Type.Optional(Nullable(Type.String({ description: 'Null for the host volume.' }))),
  storage: VolumeType,
  status: Words(['active', 'deleting'], { title: 'VolumeStatus' }),
  labels: StringMap(),
  capacity_bytes: Type.Optional(Nullable(Int64())),
  used_bytes: Type.Optional(Nullable(Int64())),
  created_at: DateTime,
  updated_at: DateTime,
});
export type VolumeResponse = Static<typeof VolumeResponse>;

export const CreateVolumeRequest = Named('CreateVolumeRequest', {
  name: Type.String({
    description: '1 to 63 lower-case letters, digits and single hyphens; unique in the organization.',
  }),
  labels: Type.Optional(StringMap()),
  capacity_gib: Type.Optional(Nullable(Int32({ minimum: 1 }))),
  storage: Type.Optional(Nullable(VolumeType)),
});
export type CreateVolumeRequest = Static<typeof CreateVolumeRequest>;

export const UpdateVolumeRequest = Named('UpdateVolumeRequest', {
  capacity_gib: Type.Optional(
    Nullable(Int32({ minimum: 1, description: 'Left out, the cap stays; null clears it.' })),
  ),
  labels: Type.Optional(Nullable(StringMap({ description: 'Replaces all labels; `{}` clears them.' }))),
});
export type UpdateVolumeRequest = Static<typeof UpdateVolumeRequest>;
