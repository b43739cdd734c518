import type Docker from 'dockerode';
import { readFileSync } from 'node:fs';
import { release } from 'node:os';
import { v5 as uuidv5 } from 'uuid';
import type { SlotLimits } from '../../fairness/slots.js';
import { CPU_OVERCOMMIT } from '../../engine/machine-capacity.js';
import type { Capacity, Runtime } from '../../engine/runtime.js';
import { SHARED_CPU_MILLIS } from '../../engine/shared-cpu.js';
import type { ContainerdPlace } from './containerd.js';
import { sharesKernel, type CapabilityInfo } from './detect-capabilities.js';

export interface EngineInfo extends CapabilityInfo {
  ID: string;
  Name: string;
  DockerRootDir: string;
  Architecture: string;
  NCPU: number;
  MemTotal: number;
  KernelVersion: string;
  ServerVersion: string;
  CgroupDriver?: string;
  CgroupVersion?: string;
  Containerd?: ContainerdPlace;
}

const ENGINE_NAMESPACE = '3f0d8c62-6c0f-4f5e-9a3b-6c1d0e7a52b4';

export function capacityOf(info: EngineInfo): Capacity {
  return {
    vcpus: info.NCPU * CPU_OVERCOMMIT,
    memoryMib: memoryOf(info),
    diskMib: null,
  };
}

export const STARTS_PER_CPU = 2;
const FEWEST_STARTS = 4;

/**
 * How many containers are made and started at once: the work of the engine, without pulls. One slot is for a further
 * organization.
 */
export function startSlots(cpus: number): SlotLimits {
  const total = Math.max(cpus * STARTS_PER_CPU, FEWEST_STARTS);
  return { total, each: total - 1 };
}

/** A file of ext4 has 16 TiB at most. */
const LARGEST_DISK_GIB = 16_000;

export function boundsOf(
  info: EngineInfo,
  runtimeClass?: string,
  sharedCpuMillis = SHARED_CPU_MILLIS.default,
): Runtime['bounds'] {
  const onThisKernel = info.KernelVersion === release() && sharesKernel(info, runtimeClass);
  return {
    vcpus: info.NCPU,
    memoryMib: memoryOf(info),
    // The engine refuses less.
    smallestMemoryMib: 6,
    sharedCpuMillis,
    volumeCapGib: LARGEST_DISK_GIB,
    ...(onThisKernel ? { openFiles: Number(readFileSync('/proc/sys/fs/nr_open', 'utf8')) } : {}),
  };
}

/** In the words of image manifests. */
export function goArchitecture({ Architecture }: EngineInfo): string {
  const known: Record<string, string> = { x86_64: 'amd64', aarch64: 'arm64' };
  return known[Architecture] ?? Architecture;
}

function memoryOf({ MemTotal }: EngineInfo): number {
  return Math.floor(MemTotal / 1024 / 1024);
}

/** Podman invents a new id for each request: there the machine and the directory identify the engine. */
export async function engineIdOf(docker: Docker, info: EngineInfo, instanceId: string): Promise<string> {
  const second = (await docker.info()) as EngineInfo;
  const engine = info.ID === second.ID ? info.ID : `${info.Name} ${info.DockerRootDir}`;
  return uuidv5(`${instanceId} ${engine}`, ENGINE_NAMESPACE);
}
