import { Type, type Static } from 'typebox';
import { labelsForm } from '../http/labels-form.js';
import {
  documented,
  DateTime,
  Field,
  Int32,
  Int64,
  Named,
  Nullable,
  restricting,
  StringMap,
  Uint64,
  Uuid,
  Words,
} from '../http/schema.js';

const VolumeType = Words(['block'], {
  title: 'VolumeType',
  description: 'The kind of storage. There is only `block`.',
});

export const VolumeResponse = Named(
  'VolumeResponse',
  {
    id: Field(Uuid, 'The id of the volume.'),
    kind: Words(['host', 'managed'], {
      title: 'VolumeKind',
      description: '`host` for the one host volume of the organization, `managed` for volumes with a name.',
    }),
    name: Type.Optional(
      Nullable(Type.String({ description: 'The name of the volume. Null for the host volume.' })),
    ),
    storage: VolumeType,
    status: Words(['active', 'deleting'], {
      title: 'VolumeStatus',
      description: '`deleting` from the request to delete the volume until it is purged.',
    }),
    labels: StringMap({ description: 'The labels of the volume.' }),
    capacity_bytes: Type.Optional(
      Nullable(Uint64({ description: 'The cap of the volume in bytes. Null: it has none.' })),
    ),
    used_bytes: Type.Optional(
      Nullable(
        Int64({ description: 'The used bytes at the latest reading. Null before the first reading.' }),
      ),
    ),
    created_at: Field(DateTime, 'The time at which the volume was created.'),
    updated_at: Field(DateTime, 'The time at which the volume last changed.'),
  },
  'Storage that outlives sandboxes.',
);
export type VolumeResponse = Static<typeof VolumeResponse>;

/** A volume without the cap or the protection that its owner asked for would be another one. */
const RESTRICTIONS = {
  fields: ['capacity_gib', 'storage'],
  words: [
    'capacity',
    'size',
    'quota',
    'limit',
    'max',
    'ttl',
    'expire',
    'retention',
    'readonly',
    'encrypted',
    'encryption',
    'permission',
    'policy',
    'replica',
    'snapshot',
    'backup',
  ],
};

export const NAME = /^[a-z0-9]+(-[a-z0-9]+)*$/;
export const NAME_LENGTH = 63;

export const CreateVolumeRequest = Named(
  'CreateVolumeRequest',
  {
    name: Type.String({
      ...documented({ pattern: NAME.source, maxLength: NAME_LENGTH }),
      description:
        'The name of the volume: 1 to 63 lower-case letters, digits and single hyphens, unique in the organization.',
    }),
    labels: Type.Optional(
      StringMap({ ...labelsForm(), description: 'The labels of the volume. Default: none.' }),
    ),
    capacity_gib: Type.Optional(
      Nullable(Int32({ minimum: 1, description: 'The cap of the volume in GiB. Null or left out: none.' })),
    ),
    storage: Type.Optional(Field(Nullable(VolumeType), 'The kind of storage. Default: `block`.')),
  },
  'The volume to create.',
  restricting(RESTRICTIONS),
);
export type CreateVolumeRequest = Static<typeof CreateVolumeRequest>;

export const UpdateVolumeRequest = Named(
  'UpdateVolumeRequest',
  {
    capacity_gib: Type.Optional(
      Nullable(
        Int32({
          minimum: 1,
          description: 'The new cap in GiB. Null removes the cap; if left out, it stays.',
        }),
      ),
    ),
    labels: Type.Optional(
      Nullable(
        StringMap({
          ...labelsForm(),
          description: 'The new labels. They replace all labels; `{}` removes them.',
        }),
      ),
    ),
  },
  'The changes to a volume.',
  restricting(RESTRICTIONS),
);
export type UpdateVolumeRequest = Static<typeof UpdateVolumeRequest>;
