import { Type } from 'typebox';
import { ApiError, type ErrorName } from '../../http/errors.js';
import { Words } from '../../http/schema.js';
import { WriteHeaders } from '../../idempotency/schema.js';

export const PathHeaders = Type.Object({
  'x-msb-file-path': Type.String({
    description:
      'The path as base64url of its UTF-8, such as `YS9iLnR4dA` for `a/b.txt`. Every path begins at the top of the volume, or of the sandbox.',
  }),
});

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

export function readPath(
  { 'x-msb-file-path': header }: { 'x-msb-file-path': string },
  refusal: 'invalid_volume_path' | 'invalid_sandbox_path' = 'invalid_volume_path',
): string {
  const digits = header.replace(/={1,2}$/, '');
  const bytes = Buffer.from(digits, 'base64url');
  // Node ignores invalid digits and excess bits.
  if (digits === '' || bytes.toString('base64url') !== digits) throw notBase64(refusal);
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
