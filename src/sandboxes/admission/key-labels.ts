import { isNarrowed } from '../../access/access.js';
import type { Caller } from '../../access/caller.js';
import { requireScope } from '../../access/required-scope.js';
import { ApiError } from '../../http/errors.js';
import type { CreateSandboxRequest } from '../../spec/specification.js';

/** Adds the labels that the key of the caller requires. Throws when a requested label contradicts one. */
export function withKeyLabels(
  { access }: Caller,
  labels: Record<string, string> | undefined,
): Record<string, string> | undefined {
  if (!isNarrowed(access)) return labels;
  for (const [key, value] of Object.entries(access.labels)) {
    // `hasOwn`, because every object has an inherited `constructor`.
    if (!labels || !Object.hasOwn(labels, key) || labels[key] === value) continue;
    throw new ApiError('label_not_allowed', `the key is narrowed to sandboxes with ${key}=${value}`, {
      field: `labels.${key}`,
      labels: access.labels,
    });
  }
  return { ...labels, ...access.labels };
}

/** A sandbox can read and change its mounts, so the key needs the scopes for volumes. `tmpfs` is no volume. */
export function refuseMounts(caller: Caller, { mounts = [] }: Pick<CreateSandboxRequest, 'mounts'>): void {
  for (const mount of mounts) {
    if (mount.type === 'tmpfs') continue;
    requireScope(caller, mount.options?.readonly === true ? 'volumes:read' : 'volumes:write');
  }
}
