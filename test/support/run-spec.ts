import type { GatedNetwork, RunSpec } from '../../src/spec/run-spec.js';

/** A specification without anything of its own, for an image that the engine has. */
export function runSpecOf(image: string, changes: Partial<RunSpec> = {}): RunSpec {
  return {
    image,
    pullPolicy: 'never',
    vcpus: 1,
    memoryMib: 64,
    diskMib: null,
    cmd: null,
    entrypoint: null,
    user: null,
    workdir: null,
    shell: null,
    scripts: {},
    env: [],
    labels: {},
    rlimits: [],
    mounts: [],
    patches: [],
    init: null,
    securityProfile: 'default',
    networkEnabled: true,
    idleTimeoutSecs: null,
    maxDurationSecs: null,
    demands: [],
    ...changes,
  };
}

/** A network with a gateway that decrypts nothing. */
export const GATED: GatedNetwork = {
  strict: true,
  dns: { nameservers: [], queryTimeoutMs: 5_000, rebindProtection: true },
  tls: {
    enabled: false,
    ports: [443],
    bypass: [],
    verifyUpstream: true,
    scopedVerify: [],
    authorities: [],
    blockQuic: true,
    cacheCapacity: 10,
    validityHours: 24,
  },
  secrets: [],
};
