import type { Capability } from '../../spec/capabilities.js';

/** Admission refuses by its field what needs another one. docs/microvm.md has the same list. */
export const CAPABILITIES: readonly Capability[] = [
  'user_names',
  'image_entrypoint',
  'any_env_name',
  'hostname_domain',
  'disk_size',
  'disk_images',
  'scripts',
  'patches',
  'patch_remove',
  'rlimits',
  'tmpfs',
  'tmpfs_flags',
  'network_off',
  'idle_timeout',
  'registry_credentials',
  'secret_env',
  'pause',
];
