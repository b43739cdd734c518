import { Buffer } from 'node:buffer';
import { ApiError } from '../http/errors.js';
import { stringifyExact } from '../lib/exact-json.js';
import type { CreateSandboxRequest } from './schema.js';
import { MAX_PATCH_BYTES, MAX_PATH_BYTES, MAX_SPEC_BYTES } from './size-limits.js';

type Patch = NonNullable<CreateSandboxRequest['patches']>[number];

/** Bounds what a sandbox stores, and with it every list that shows the sandbox. */
export function checkSize(request: CreateSandboxRequest): void {
  checkParts(request);
  checkContents(request.patches ?? []);
}

function checkParts({
  image,
  resources,
  runtime,
  env,
  labels,
  rlimits,
  mounts,
  ...rest
}: CreateSandboxRequest) {
  const { network, init, lifecycle, registry } = rest;
  const parts = {
    runtime,
    env,
    labels,
    mounts,
    network,
    init,
    image,
    resources,
    rlimits,
    lifecycle,
    registry,
  };
  const sizes = Object.entries(parts).map(([field, part]) => ({ field, bytes: sizeOf(part) }));
  const total = sizes.reduce((sum, { bytes }) => sum + bytes, 0);
  if (total <= MAX_SPEC_BYTES) return;
  const { field, bytes } = sizes.reduce((largest, part) => (part.bytes > largest.bytes ? part : largest));
  throw new ApiError(
    'invalid_sandbox_config',
    `the specification has ${total} bytes of JSON, and may have ${MAX_SPEC_BYTES}: ${field} has ${bytes} of them; put files into an image or a volume`,
    { field, bytes: total, limit_bytes: MAX_SPEC_BYTES },
  );
}

function sizeOf(part: unknown): number {
  return part === undefined ? 0 : Buffer.byteLength(stringifyExact(part));
}

function checkContents(patches: Patch[]): void {
  let total = 0;
  for (const [index, patch] of patches.entries()) {
    const field = `patches[${index}]`;
    if (patch.type === 'file' && typeof patch.content === 'string' && !isBase64(patch.content)) {
      throw new ApiError('invalid_sandbox_config', `${field}.content must be base64`, {
        field: `${field}.content`,
      });
    }
    if (patch.type === 'symlink' && Buffer.byteLength(patch.target) > MAX_PATH_BYTES) {
      const message = `${field}.target has more than ${MAX_PATH_BYTES} bytes`;
      throw new ApiError('invalid_sandbox_config', message, { field: `${field}.target` });
    }
    total += contentBytes(patch);
    if (total <= MAX_PATCH_BYTES) continue;
    throw new ApiError(
      'invalid_sandbox_config',
      `the contents of the patches have more than ${MAX_PATCH_BYTES} bytes: upload files to a volume, or to the running sandbox`,
      { field, limit_bytes: MAX_PATCH_BYTES },
    );
  }
}

function isBase64(text: string): boolean {
  return Buffer.from(text, 'base64').toString('base64') === text;
}

function contentBytes(patch: Patch): number {
  if (!('content' in patch)) return 0;
  if (typeof patch.content !== 'string') return patch.content.length;
  return patch.type === 'file'
    ? Buffer.byteLength(patch.content, 'base64')
    : Buffer.byteLength(patch.content);
}
