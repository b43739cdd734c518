import type { Integer } from '../lib/exact-json.js';
import type { NetworkPolicy } from '../network-policy/schema.js';
import type { Capability } from './capabilities.js';
import type { MountRequest } from './mount-schema.js';
import type { CreateSandboxRequest } from './schema.js';

/** The request with defaults and without secrets, as the store keeps it. */
export interface RunSpec {
  image: string;
  pullPolicy: 'if_missing' | 'always' | 'never';
  vcpus: number;
  memoryMib: number;
  diskMib: number | null;
  cmd: string[] | null;
  entrypoint: string[] | null;
  user: string | null;
  workdir: string | null;
  shell: string | null;
  scripts: Record<string, string>;
  /** `secret`: the value is in the secrets of the run. */
  env: { key: string; value: string; secret?: boolean }[];
  labels: Record<string, string>;
  rlimits: { resource: string; soft: Integer; hard: Integer }[];
  mounts: RunMount[];
  patches: NonNullable<CreateSandboxRequest['patches']>;
  init: CreateSandboxRequest['init'];
  securityProfile: 'default' | 'restricted';
  networkEnabled: boolean;
  /** Null, or missing in specifications of earlier releases: the public profile. */
  networkPolicy?: NetworkPolicy | null;
  /** Default: the id of the sandbox. */
  hostname?: string | null;
  /** The run ends with `cmd`. Default: false. */
  endsWithCommand?: boolean;
  idleTimeoutSecs: number | null;
  maxDurationSecs: number | null;
  demands: Capability[];
}

/** `volumeId`: never shown to callers. */
export type VolumeMount = Extract<MountRequest, { type: 'bind' | 'named' }> & { volumeId: string };
export type RunMount = Exclude<MountRequest, { type: 'bind' | 'named' }> | VolumeMount;

export interface RunSecrets {
  /** Null: the image is there already, or needs none. */
  registry: { username: string; password: string } | null;
  /** For the network, by variable. */
  values: Record<string, string>;
  /** The secret variables of the environment. */
  env?: Record<string, string>;
}
