import { Buffer } from 'node:buffer';
import { Type } from 'typebox';
import { ApiError } from '../../http/errors.js';
import { withBase64 } from '../file-patches.js';
import { field, type Requirement } from '../field.js';
import { checkGuestPath } from '../guest-path.js';
import type { MountRequest } from '../mount-schema.js';
import { Patch } from '../patch-schema.js';
import { refuse } from '../refuse.js';
import { MAX_PATCH_BYTES, MAX_PATH_BYTES, MOST } from '../size-limits.js';

/** The container engine creates these at each start. */
const ENGINE_FILES = new Set(['/etc/hosts', '/etc/hostname', '/etc/resolv.conf']);

export const patches = field({
  schema: Type.Array(Patch, {
    maxItems: MOST.patches,
    description: `The changes to files before the first start, in their order. Their contents have ${MAX_PATCH_BYTES} bytes at most.`,
  }),
  answer: null,
  default: [],
  limitsItself: true,
  check(asked, { whole }) {
    checkContents(asked);
    for (const [index, patch] of asked.entries()) checkPatch(patch, `patches[${index}]`, whole.mounts ?? []);
  },
  requires: (asked) => [
    asked.length > 0 && { capability: 'patches', what: 'patch the root filesystem' },
    ...asked.flatMap((patch, index) => requirementsOf(patch, `patches[${index}]`)),
  ],
  run: (asked) => ({ patches: withBase64(asked) }),
});

function checkPatch(patch: Patch, at: string, mounts: readonly MountRequest[]): void {
  if (patch.type === 'copy_file' || patch.type === 'copy_dir') {
    refuse(
      `${at}.src`,
      `${patch.type} names a path on your machine, which the service cannot read: send the content with a text or file patch`,
    );
  }
  const [key, path] = patch.type === 'symlink' ? ['link', patch.link] : ['path', patch.path];
  checkGuestPath(path, `${at}.${key}`);
  const over = mounts.find(({ guest }) => path === guest || path.startsWith(`${guest}/`));
  if (over)
    refuse(`${at}.${key}`, `${at}.${key} is under the mount at ${over.guest}, where patches do not reach`);
}

function checkContents(asked: readonly Patch[]): void {
  let total = 0;
  for (const [index, patch] of asked.entries()) {
    const at = `patches[${index}]`;
    if (patch.type === 'file' && typeof patch.content === 'string' && !isBase64(patch.content))
      refuse(`${at}.content`, `${at}.content must be base64`);
    if (patch.type === 'symlink' && Buffer.byteLength(patch.target) > MAX_PATH_BYTES)
      refuse(`${at}.target`, `${at}.target has more than ${MAX_PATH_BYTES} bytes`);
    total += contentBytes(patch);
    if (total <= MAX_PATCH_BYTES) continue;
    throw new ApiError(
      'invalid_sandbox_config',
      `the contents of the patches have more than ${MAX_PATCH_BYTES} bytes: upload files to a volume, or to the running sandbox`,
      { field: at, limit_bytes: MAX_PATCH_BYTES },
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

function requirementsOf(patch: Patch, at: string): (Requirement | false)[] {
  const path = patch.type === 'symlink' ? patch.link : 'path' in patch ? patch.path : patch.dst;
  return [
    patch.type === 'remove' && {
      capability: 'patch_remove',
      field: at,
      what: 'remove what is in the image',
    },
    ENGINE_FILES.has(path) && {
      capability: 'patch_engine_files',
      field: at,
      what: `patch ${path}, which it makes itself at each start`,
    },
  ];
}
