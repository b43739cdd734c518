import type { Integer } from '../lib/exact-json.js';
import type { DnsSettings, GatedSecret, TlsSettings } from '../gateway/protocol.js';
import type { NetworkPolicy } from '../network-policy/schema.js';
import type { Capability } from './capabilities.js';
import type { HandoffInit } from './init-schema.js';
import type { MountRequest } from './mount-schema.js';
import type { PublishedPort } from './network-schema.js';
import type { Patch } from './patch-schema.js';

/** The request with defaults and without secrets, as the store keeps it. */
export interface RunSpec {
  /** A sandbox that was made from a snapshot has the image below it. */
  image: string;
  /** Its disk begins with this snapshot. Absent: with the image. */
  snapshotId?: string;
  /** Absent: with the stored credential that matches the image, if there is one. */
  registryAccess?: { mode: 'anonymous' } | { mode: 'specific'; credential_id: string };
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
  patches: Patch[];
  init?: HandoffInit | null;
  securityProfile: 'default' | 'restricted';
  networkEnabled: boolean;
  /** Null, or missing in specifications of earlier releases: the public profile. */
  networkPolicy?: NetworkPolicy | null;
  /** Absent: no connection depends on names, secrets or interception, so none passes the gateway. */
  gated?: GatedNetwork | null;
  /** Absent: no limit of its own. */
  networkLimits?: { tcp: number | null; udp: number | null } | null;
  /** Absent: none. */
  ports?: PublishedPort[];
  /** Absent: the engine decides. */
  networkInterface?: { mac: string | null; mtu: number | null; ipv4: string | null } | null;
  /** Each of its destinations is an audit event. Default: false, and the organization may turn it on. */
  networkRecord?: boolean;
  /** The sandbox trusts the authorities of the machine too. Default: false. */
  trustHostCas?: boolean;
  /** Default: the id of the sandbox. */
  hostname?: string | null;
  /** The run ends with `cmd`. Default: false. */
  endsWithCommand?: boolean;
  /** A request to a preview starts it. Default: false. */
  wakeOnRequest?: boolean;
  /** The idle timeout pauses it. Default: false, it stops it. */
  pausesWhenIdle?: boolean;
  idleTimeoutSecs: number | null;
  maxDurationSecs: number | null;
  demands: Capability[];
}

export interface GatedNetwork {
  strict: boolean;
  dns: DnsSettings;
  tls: TlsSettings;
  /** The values are in the secrets of the run. */
  secrets: Omit<GatedSecret, 'value'>[];
}

/** `volumeId`: never shown to callers. */
export type VolumeMount = Extract<MountRequest, { type: 'bind' | 'named' }> & { volumeId: string };
/** The file is in the host volume. `volumeId`: never shown to callers. */
export type DiskImageMount = Extract<MountRequest, { type: 'disk_image' }> & { volumeId: string };
export type RunMount = Extract<MountRequest, { type: 'tmpfs' }> | VolumeMount | DiskImageMount;

/** The volumes that the mounts of a request name. */
export interface MountVolumes {
  /** The ids of managed volumes by their names. */
  named: ReadonlyMap<string, string>;
  /** The id of the host volume, if the request mounts a part or a disk image of it. */
  host: string | undefined;
}

export interface RunSecrets {
  /** Null: the image is there already, or needs none. */
  registry: { username: string; password: string } | null;
  /** For the network, by variable. */
  values: Record<string, string>;
  /** The secret variables of the environment. */
  env?: Record<string, string>;
}
