import { isIPv6 } from 'node:net';
import type { Capability } from '../../spec/capabilities.js';
import type { PublishedPort } from '../../spec/network-schema.js';
import type { RunMount, RunSpec } from '../../spec/run-spec.js';
import type { SandboxSpec } from '../../spec/specification.js';
import type { VolumeCopy } from './volume-names.js';

export interface Specs {
  /** For callers. */
  spec: SandboxSpec;
  /** For the engine. */
  runSpec: RunSpec;
}

/** All copies of one operation have these in common. */
export interface CopyOptions {
  /** The operation, whose snapshot is the disk. */
  forkId: string;
  labels: Record<string, string>;
  mounts: RunMount[];
  inheritsSecrets: boolean;
}

/** Abilities that a copy does not need for what it does not inherit. */
const OF_IDENTITY: readonly Capability[] = [
  'hostname_domain',
  'network_mac',
  'network_address',
  'published_ports',
  'published_ipv6',
  'registry_credentials',
  'patches',
  'patch_remove',
  'patch_engine_files',
];
const OF_SECRETS: readonly Capability[] = ['secrets', 'secret_env'];

/**
 * The specification of a copy, without ports. It has no identity of the source: host name, MAC and IPv4 address. The
 * patches are on the disk already, and no image is pulled.
 */
export function copiedSpecs(
  { spec, runSpec }: Specs,
  { forkId, labels, mounts, inheritsSecrets }: CopyOptions,
): Specs {
  const { registryAccess: _, ports: __, networkInterface, gated, ...rest } = runSpec;
  const dropped = new Set([...OF_IDENTITY, ...(inheritsSecrets ? [] : OF_SECRETS)]);
  const { interface: shownInterface, secrets, ...network } = spec.network;
  return {
    runSpec: {
      ...rest,
      snapshotId: forkId,
      labels,
      mounts,
      env: inheritsSecrets ? rest.env : rest.env.filter(({ secret }) => secret !== true),
      patches: [],
      hostname: null,
      ...(gated ? { gated: inheritsSecrets ? gated : { ...gated, secrets: [] } } : {}),
      ...(networkInterface?.mtu == null
        ? {}
        : { networkInterface: { mac: null, ipv4: null, mtu: networkInterface.mtu } }),
      demands: [
        ...rest.demands.filter((each) => !dropped.has(each) && each !== 'disk_snapshots'),
        'disk_snapshots',
      ],
    },
    spec: {
      ...spec,
      labels,
      env: inheritsSecrets ? spec.env : spec.env.filter(({ secret }) => secret !== true),
      runtime: { ...spec.runtime, hostname: null },
      network: {
        ...network,
        ports: [],
        ...(shownInterface?.mtu == null ? {} : { interface: { mtu: shownInterface.mtu } }),
        secrets: inheritsSecrets ? (secrets ?? []) : [],
      },
    },
  };
}

/** Each copy has volumes of its own in the places of the ones of the source. */
export function withCopiedVolumes({ spec, runSpec }: Specs, volumes: readonly VolumeCopy[]): Specs {
  if (volumes.length === 0) return { spec, runSpec };
  const byId = new Map(volumes.map((volume) => [volume.source.id, volume]));
  const byName = new Map(volumes.map((volume) => [volume.source.name, volume]));
  return {
    spec: {
      ...spec,
      mounts: spec.mounts.map((mount) => {
        const copy = mount.type === 'Named' ? byName.get(mount.name ?? '') : undefined;
        return copy ? { ...mount, name: copy.name } : mount;
      }),
    },
    runSpec: {
      ...runSpec,
      mounts: runSpec.mounts.map((mount) => {
        const copy = mount.type === 'named' ? byId.get(mount.volumeId) : undefined;
        return mount.type === 'named' && copy ? { ...mount, name: copy.name, volumeId: copy.id } : mount;
      }),
    },
  };
}

/** Each copy has ports of the host of its own. */
export function withCopiedPorts({ spec, runSpec }: Specs, ports: PublishedPort[]): Specs {
  if (ports.length === 0) return { spec, runSpec };
  const ipv6 = ports.some(({ host_bind }) => isIPv6(host_bind)) ? (['published_ipv6'] as const) : [];
  return {
    spec: { ...spec, network: { ...spec.network, ports } },
    runSpec: { ...runSpec, ports, demands: [...runSpec.demands, 'published_ports', ...ipv6] },
  };
}
