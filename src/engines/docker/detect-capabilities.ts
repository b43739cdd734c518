import type Docker from 'dockerode';
import { createHash } from 'node:crypto';
import { posix } from 'node:path';
import { ExplainedError } from '../../lib/explained-error.js';
import { explainNoDisks } from '../../volumes/storage/disks/probe-disks.js';
import type { VolumeStore } from '../../volumes/storage/store.js';
import type { Capability } from '../../spec/capabilities.js';
import { explainNoDiskQuota, type StorageInfo } from './disk-quota.js';
import { explainNoMounts } from './mounts/mount-probe.js';
import { StagingDirectory } from './mounts/staging-directory.js';

/** In memory, so that a reboot empties it. */
const MOUNTS_DIRECTORY = '/run/sandkeep';

/** Runtime classes that share the kernel, so that flags of an outer mount hold inside. */
const SHARED_KERNEL = new Set(['runc', 'crun', 'youki']);

export interface CapabilityInfo extends StorageInfo {
  Runtimes: Record<string, { path?: string; runtimeType?: string }>;
  DefaultRuntime: string;
  SecurityOptions: string[] | null;
}

export interface DetectedCapabilities {
  capabilities: Capability[];
  mounts: StagingDirectory;
  /** Why the engine lacks some of the others. */
  lacks: ReadonlyMap<Capability, string>;
  /** The same for the description of the runtime. */
  missing: string[];
}

export async function detectCapabilities(
  docker: Docker,
  info: CapabilityInfo,
  {
    instanceId,
    volumes,
    programs,
    runtimeClass,
  }: {
    instanceId: string;
    volumes: VolumeStore;
    programs: ReadonlyMap<string, Buffer>;
    runtimeClass: string | undefined;
  },
): Promise<DetectedCapabilities> {
  checkRuntimeClass(info, runtimeClass);
  const directory = stagingDirectoryOf(instanceId);
  // Twice: another process of this installation may sweep away the first probe.
  const noMounts = (await explainNoMounts(docker, directory)) && (await explainNoMounts(docker, directory));
  const capabilities: Capability[] = [
    ...(['user_names', 'image_entrypoint', 'any_env_name', 'hostname_domain', 'rlimits', 'tmpfs'] as const),
    ...(['tmpfs_flags', 'network', 'network_off', 'scripts', 'patches', 'idle_timeout'] as const),
    ...(['registry_credentials', 'secret_env'] as const),
  ];
  const lacks = new Map<Capability, string>();
  const missing: string[] = [];
  if (noMounts === undefined) {
    capabilities.push('named_volumes', 'bind_mounts', 'host_authorities');
    if (sharesKernel(info, runtimeClass)) capabilities.push('mount_flags');
    const noDisks =
      (await explainNoDisks(volumes.root, directory)) && (await explainNoDisks(volumes.root, directory));
    if (noDisks === undefined) capabilities.push('volume_caps');
    else {
      lacks.set('volume_caps', noDisks);
      missing.push(`no caps of volumes, because ${noDisks}`);
    }
    volumes.makesDisks = noDisks === undefined;
  } else {
    lacks.set('volume_caps', noMounts);
    missing.push(`no volumes, because ${noMounts}`);
  }
  const noDiskQuota = await explainNoDiskQuota(docker, info);
  if (noDiskQuota === undefined) capabilities.push('disk_size');
  else {
    lacks.set('disk_size', noDiskQuota);
    missing.push(`no disk sizes, because ${noDiskQuota}`);
  }
  const seccomp = (info.SecurityOptions ?? []).find((option) => option.startsWith('name=seccomp'));
  if (seccomp === undefined || seccomp.includes('unconfined')) {
    missing.push('NO SECCOMP FILTER: the engine is set to none');
  }
  const mounts = new StagingDirectory(directory, volumes, programs, noMounts);
  return { capabilities, mounts, lacks, missing };
}

/** The hash keeps the id of the installation out of the guest's mount table. */
export function stagingDirectoryOf(instanceId: string): string {
  return posix.join(MOUNTS_DIRECTORY, createHash('sha256').update(instanceId).digest('hex').slice(0, 16));
}

function checkRuntimeClass({ Runtimes }: CapabilityInfo, runtimeClass: string | undefined): void {
  if (runtimeClass === undefined || runtimeClass in Runtimes) return;
  const names = Object.keys(Runtimes).toSorted().join(', ');
  throw new ExplainedError(
    `the Docker engine has no runtime "${runtimeClass}": name one of ${names} with --docker-runtime, or add it to the engine's daemon.json`,
  );
}

/** Processes on this kernel obey its mount flags and network rules. */
export function sharesKernel(
  { Runtimes, DefaultRuntime }: CapabilityInfo,
  runtimeClass = DefaultRuntime,
): boolean {
  const { path, runtimeType } = Runtimes[runtimeClass] ?? {};
  return SHARED_KERNEL.has(posix.basename(path ?? runtimeClass)) || runtimeType === 'io.containerd.runc.v2';
}
