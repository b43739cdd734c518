import { Type, type Static } from 'typebox';
import { ApiError, badParameter, type ErrorName } from '../../http/errors.js';
import { documented, Words } from '../../http/schema.js';
import { WriteHeaders } from '../../idempotency/schema.js';

export const PathHeaders = Type.Object({
  'x-msb-file-path': Type.Optional(
    Type.String({
      ...documented({ pattern: '^[A-Za-z0-9_-]+={0,2}$' }),
      description:
        'The path as base64url of its UTF-8, such as `YS9iLnR4dA` for `a/b.txt`. Every path begins at the top of the volume, or of the sandbox. A byte that is not UTF-8 is `\\xff`, in paths and in lists alike; a backslash that stands for itself in front of such a form is `\\x5c`. The query can have the path instead.',
    }),
  ),
});

export const PathQuery = Type.Object(
  {
    path: Type.Optional(
      Type.String({
        minLength: 1,
        description: 'The path as text, such as `a/b.txt`, in place of the header `x-msb-file-path`.',
      }),
    ),
  },
  { additionalProperties: false },
);

export const RemoveHeaders = Type.Object({
  ...PathHeaders.properties,
  ...WriteHeaders.properties,
  'x-msb-file-recursive': Type.Optional(
    Words(['true', 'false'], {
      description:
        'Whether to remove a directory with everything in it. A file is then refused. Default: `false`.',
    }),
  ),
});

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

type Refusal = 'invalid_volume_path' | 'invalid_sandbox_path';

/** The path of a file from the query or the header of a request. */
export function readPath(
  {
    headers: { 'x-msb-file-path': header },
    query: { path },
  }: { headers: Static<typeof PathHeaders>; query: Static<typeof PathQuery> },
  refusal: Refusal = 'invalid_volume_path',
): string {
  if (path !== undefined && header !== undefined) {
    throw badParameter('path', 'path and x-msb-file-path exclude each other: send one of them');
  }
  if (path !== undefined) return path;
  if (header === undefined) {
    const message = 'the request names no path: send ?path=/a/b.txt, or its base64url in x-msb-file-path';
    throw badParameter('path', message);
  }
  return decoded(header, refusal);
}

function decoded(header: string, refusal: Refusal): string {
  // Official clients send the header of an empty path. The error about it is that of the path.
  if (header === '') return '';
  const digits = header.replace(/={1,2}$/, '');
  const bytes = Buffer.from(digits, 'base64url');
  // Node ignores invalid digits and excess bits.
  if (bytes.toString('base64url') !== digits) throw notBase64(refusal);
  try {
    return utf8.decode(bytes);
  } catch {
    throw notBase64(refusal);
  }
}

function notBase64(refusal: ErrorName): ApiError {
  return new ApiError(refusal, 'x-msb-file-path must be base64url of a path in UTF-8', {
    parameter: 'x-msb-file-path',
  });
}
