import { Type, type Static } from 'typebox';
import { DateTime, Field, Int64, Named, Nullable, Uint64, Words } from '../../http/schema.js';

export const SandboxFile = Named(
  'SandboxFile',
  {
    path: Type.String({ description: 'The absolute path in the sandbox.' }),
    kind: Words(['file', 'directory', 'symlink', 'other'], {
      title: 'SandboxFileKind',
      description: 'The kind of the entry. A symbolic link is not followed.',
    }),
    size: Uint64({ description: 'The size in bytes.' }),
    mode: Int64({ description: 'The permission bits as a number, such as 420 for `rw-r--r--`.' }),
    uid: Int64({ description: 'The user id of the owner.' }),
    gid: Int64({ description: 'The group id of the owner.' }),
    readonly: Type.Boolean({ description: 'Whether nobody has the permission to write.' }),
    accessed_at: Field(Nullable(DateTime), 'The time of the latest access, in whole seconds.'),
    modified_at: Field(Nullable(DateTime), 'The time of the latest change of the content, in whole seconds.'),
  },
  'An entry of the file system of a sandbox.',
);
export type SandboxFile = Static<typeof SandboxFile>;

export const SandboxFileList = Named(
  'SandboxFileList',
  { entries: Type.Array(SandboxFile, { description: 'The entries, sorted by name.' }) },
  'The entries of a directory.',
);
export const SandboxFileStat = Named(
  'SandboxFileStat',
  { metadata: SandboxFile },
  'The properties of one entry.',
);
export const SandboxFileExists = Named(
  'SandboxFileExists',
  { exists: Type.Boolean({ description: 'Whether the path leads to an entry.' }) },
  'Whether a path exists.',
);

const pathOf = (what: string) => ({
  description: `The path of ${what}. Relative paths begin at the top of the sandbox.`,
});

export const MakeDirectoryRequest = Named(
  'SandboxMakeDirectoryRequest',
  { path: Type.String(pathOf('the directory')) },
  'The directory to make.',
);
export const TransferRequest = Named(
  'SandboxTransferRequest',
  { from: Type.String(pathOf('the source')), to: Type.String(pathOf('the target')) },
  'The source and the target of a copy or a move.',
);
export type TransferRequest = Static<typeof TransferRequest>;
