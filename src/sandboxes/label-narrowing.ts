import { isNarrowed } from '../access/access.js';
import type { Caller } from '../access/caller.js';
import { requireScope } from '../access/required-scope.js';
import { ApiError } from '../http/errors.js';
import type { CreateSandboxRequest } from './spec/schema.js';

/**
 * The labels that a sandbox gets from a caller: those that were asked for, with those that its key is narrowed to. Throws
 * when one of these was to be another.
 */
export function labelsWithin(
  { access }: Caller,
  labels: Record<string, string> | undefined,
): Record<string, string> | undefined {
  if (!isNarrowed(access)) return labels;
  for (const [key, value] of Object.entries(access.labels)) {
    // Only what was asked for: `constructor` is a label as good as any, and every object has one.
    if (!labels || !Object.hasOwn(labels, key) || labels[key] === value) continue;
    throw new ApiError('label_not_allowed', `the key is narrowed to sandboxes with ${key}=${value}`, {
      field: `labels.${key}`,
      labels: access.labels,
    });
  }
  return { ...labels, ...access.labels };
}

/**
 * What is mounted can be read and changed from within the sandbox, so the key must be allowed that. Mounts of what lies in no
 * volume need nothing.
 */
export function refuseMounts(caller: Caller, { mounts = [] }: CreateSandboxRequest): void {
  for (const mount of mounts) {
    if (mount.type === 'tmpfs') continue;
    requireScope(caller, mount.options?.readonly === true ? 'volumes:read' : 'volumes:write');
  }
}
