import { Type, type Static } from 'typebox';
import { DateTime, Field, Named, Nullable, Uint64, Words } from '../../http/schema.js';

const unsigned = { type: 'integer', format: 'int64', minimum: 0 } as const;

export const VolumeFile = Named(
  'VolumeFile',
  {
    path: Type.String({ description: 'The absolute path in the volume, whose top is `/`.' }),
    kind: Words(['file', 'directory', 'symlink'], {
      title: 'VolumeFileKind',
      description:
        'The kind of the entry. A symbolic link is not followed; its `size` is that of its target.',
    }),
    target: Type.Optional(
      Type.String({
        description:
          'The target of a symbolic link, as a guest wrote it. Only the properties of one path have it.',
      }),
    ),
    size: Uint64({ description: 'The size in bytes.' }),
    mode: Type.Unsafe<number>({
      ...unsigned,
      description: 'The permission bits as a number, such as 420 for `rw-r--r--`.',
    }),
    uid: Type.Unsafe<number>({ ...unsigned, description: 'The user id of the owner.' }),
    gid: Type.Unsafe<number>({ ...unsigned, description: 'The group id of the owner.' }),
    readonly: Type.Boolean({ description: 'Whether nobody has the permission to write.' }),
    accessed_at: Field(Nullable(DateTime), 'The time of the latest access, if known.'),
    modified_at: Field(Nullable(DateTime), 'The time of the latest change of the content, if known.'),
    created_at: Field(Nullable(DateTime), 'The time of creation, if the file system knows it.'),
  },
  'A file, directory or symbolic link of a volume.',
);
export type VolumeFile = Static<typeof VolumeFile>;

export const VolumeFileList = Named(
  'VolumeFileList',
  { entries: Type.Array(VolumeFile, { description: 'The entries, sorted by name.' }) },
  'The entries of a directory.',
);
export const VolumeFileStat = Named(
  'VolumeFileStat',
  { metadata: VolumeFile },
  'The properties of one entry.',
);
export const VolumeFileExists = Named(
  'VolumeFileExists',
  {
    exists: Type.Boolean({
      description: 'Whether the path leads to a file, a directory or a symbolic link.',
    }),
  },
  'Whether a path exists.',
);

const pathOf = (what: string) => ({
  description: `The path of ${what} in the volume. Relative paths begin at the top of the volume.`,
});

export const MakeDirectoryRequest = Named(
  'VolumeMakeDirectoryRequest',
  { path: Type.String(pathOf('the directory')) },
  'The directory to make.',
);
export const TransferRequest = Named(
  'VolumeTransferRequest',
  { from: Type.String(pathOf('the source')), to: Type.String(pathOf('the target')) },
  'The source and the target of a copy or a move.',
);
export type TransferRequest = Static<typeof TransferRequest>;
