import type { Capability } from '../../spec/capabilities.js';
import type { MicrovmParts } from './parts.js';

/** Admission refuses by its field what needs another one. docs/microvm.md has the same list. */
export const CAPABILITIES: readonly Capability[] = [
  'user_names',
  'image_entrypoint',
  'any_env_name',
  'hostname_domain',
  'disk_size',
  'disk_images',
  'disk_snapshots',
  'scripts',
  'patches',
  'patch_remove',
  'init',
  'rlimits',
  'rlimit_as',
  'rlimit_priority',
  'tmpfs',
  'tmpfs_flags',
  'network_off',
  'host_authorities',
  'idle_timeout',
  'registry_credentials',
  'secret_env',
  'pause',
];

/**
 * The files of a volume have the owners and the modes that sandboxes give them, and nobody else on the machine reaches
 * them. So each word of `stat_virtualization` and of `host_permissions` is what a sandbox sees.
 */
export function volumeCapabilities({
  fileServer,
  volumes,
}: Pick<MicrovmParts, 'fileServer' | 'volumes'>): Capability[] {
  if (!fileServer) return [];
  const caps = volumes.makesDisks ? (['volume_caps'] as const) : [];
  return ['named_volumes', 'bind_mounts', 'mount_flags', 'stat_virtualization', 'host_permissions', ...caps];
}
