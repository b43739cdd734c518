import type { Capability } from './capabilities.js';

/** The engine as the checks of a request see it. */
export interface EngineAbilities {
  readonly name: string;
  readonly capabilities: ReadonlySet<Capability>;
  /** `openFiles`: the largest `nofile` limit of the kernel, if known. */
  readonly bounds: {
    vcpus: number;
    memoryMib: number;
    smallestMemoryMib: number;
    /** The most of one sandbox. Undefined: any number. */
    mountedVolumes?: number;
    diskImages?: number;
    /** The largest disk. Undefined: any size. */
    diskMib?: number;
    openFiles?: number;
    /** A sandbox with `vcpus` 0 gets so much. 0: it is refused. */
    sharedCpuMillis: number;
    /** The largest cap of a volume that it can enforce, in GiB. Undefined: any. */
    volumeCapGib?: number;
  };
}
