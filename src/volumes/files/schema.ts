import { Type, type Static } from 'typebox';
import { DateTime, Int64, Named, Nullable, Words } from '../../http/schema.js';

const unsigned = { type: 'integer', format: 'int64', minimum: 0 } as const;

export const VolumeFile = Named('VolumeFile', {
  path: Type.String({ description: 'Absolute in the volume: its top is `/`.' }),
  kind: Words(['file', 'directory'], { title: 'VolumeFileKind' }),
  size: Int64({ description: 'Bytes.' }),
  mode: Type.Unsafe<number>({ ...unsigned, description: 'Permission bits, such as 420 for `rw-r--r--`.' }),
  uid: Type.Unsafe<number>(unsigned),
  gid: Type.Unsafe<number>(unsigned),
  readonly: Type.Boolean({ description: 'Nobody has the permission to write.' }),
  accessed_at: Nullable(DateTime),
  modified_at: Nullable(DateTime),
  created_at: Nullable(DateTime),
});
export type VolumeFile = Static<typeof VolumeFile>;

export const VolumeFileList = Named('VolumeFileList', {
  entries: Type.Array(VolumeFile, { description: 'By name.' }),
});
export const VolumeFileStat = Named('VolumeFileStat', { metadata: VolumeFile });
export const VolumeFileExists = Named('VolumeFileExists', { exists: Type.Boolean() });

const path = { description: 'A path in the volume, absolute or relative to its top, which is the same.' };

export const MakeDirectoryRequest = Named('VolumeMakeDirectoryRequest', { path: Type.String(path) });
export const TransferRequest = Named('VolumeTransferRequest', {
  from: Type.String(path),
  to: Type.String(path),
});
export type TransferRequest = Static<typeof TransferRequest>;
