/** Changes to files of the guest, in requests. */
import { Type, type Static } from 'typebox';
import { Int32, Nullable, Variants } from '../http/schema.js';

const guestPath = (description: string) => Type.String({ description });
const mode = Type.Optional(
  Nullable(
    Int32({
      maximum: 0o7777,
      description: 'The permission bits as a number, such as 420 for `rw-r--r--`. Null: the default.',
    }),
  ),
);
const replace = Type.Boolean({
  description: 'Whether to replace an existing file. If false, it is an error.',
});
const source = Type.String({
  description: 'The source on the machine of the client. The service refuses it.',
});

export const Patch = Variants(
  'type',
  [
    Type.Object({
      type: Type.Literal('text', { description: 'Writes a text file.' }),
      path: guestPath('The absolute path of the file in the guest.'),
      content: Type.String({ description: 'The text of the file.' }),
      mode,
      replace,
    }),
    Type.Object({
      type: Type.Literal('file', { description: 'Writes a file of bytes.' }),
      path: guestPath('The absolute path of the file in the guest.'),
      content: Type.Union(
        [
          Type.Array(Int32({ maximum: 255 }), { description: 'The bytes as numbers.' }),
          Type.String({ description: 'The bytes as base64.' }),
        ],
        { description: 'The bytes of the file: a list of numbers, or base64.' },
      ),
      mode,
      replace,
    }),
    Type.Object({
      type: Type.Literal('copy_file', { description: 'Copies a file from the machine of the client.' }),
      src: source,
      dst: guestPath('The absolute path of the copy in the guest.'),
      mode,
      replace,
    }),
    Type.Object({
      type: Type.Literal('copy_dir', { description: 'Copies a directory from the machine of the client.' }),
      src: source,
      dst: guestPath('The absolute path of the copy in the guest.'),
      replace,
    }),
    Type.Object({
      type: Type.Literal('symlink', { description: 'Makes a symbolic link.' }),
      target: Type.String({ description: 'The path that the link leads to.' }),
      link: guestPath('The absolute path of the link in the guest.'),
      replace,
    }),
    Type.Object({
      type: Type.Literal('mkdir', { description: 'Makes a directory.' }),
      path: guestPath('The absolute path of the directory in the guest.'),
      mode,
    }),
    Type.Object({
      type: Type.Literal('remove', { description: 'Removes a file or directory.' }),
      path: guestPath('The absolute path in the guest to remove.'),
    }),
    Type.Object({
      type: Type.Literal('append', { description: 'Appends text to an existing file.' }),
      path: guestPath('The absolute path of the file in the guest.'),
      content: Type.String({ description: 'The text to append.' }),
    }),
  ],
  { title: 'CloudPatch', description: 'A change to the files of the guest before its first start.' },
);
export type Patch = Static<typeof Patch>;
