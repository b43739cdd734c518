import type { SandboxResponse } from '../lib/api-types.js';

const MOST_LETTERS = 128;
const SUFFIX = '-copy';

interface Duplicate {
  /** The body of a request that creates another sandbox like it. */
  body: Record<string, unknown>;
  /** The parts that the body leaves out: no answer has them, or only one sandbox can. */
  left: readonly string[];
}

type Original = Pick<SandboxResponse, 'name' | 'spec' | 'disk_snapshot_id'>;

export function duplicateOf({ name, spec, disk_snapshot_id: snapshot }: Original): Duplicate {
  const body: Record<string, unknown> = { name: name.slice(0, MOST_LETTERS - SUFFIX.length) + SUFFIX };
  if (spec == null) return { body, left: ['the specification: imported history has none'] };
  if (snapshot != null) body['image'] = { type: 'disk_snapshot', id: snapshot };
  else if (spec.image != null) body['image'] = { type: 'oci', reference: spec.image };
  const env = spec.env.filter(({ secret }) => secret !== true);
  const mounts = spec.mounts.flatMap((mount) =>
    mount.type === 'Named' && mount.name != null
      ? [{ type: 'named', name: mount.name, guest: mount.guest, options: mount.options }]
      : [],
  );
  const network = {
    ...(spec.network.enabled ? {} : { enabled: false }),
    ...given({
      policy: spec.network.policy,
      record: spec.network.record,
      trust_host_cas: spec.network.trust_host_cas,
      max_connections: spec.network.max_connections,
    }),
  };
  const parts = {
    resources: given(spec.resources),
    runtime: given(spec.runtime),
    env,
    labels: spec.labels,
    lifecycle: given(spec.lifecycle),
    mounts,
    network,
  };
  for (const [field, part] of Object.entries(parts)) {
    if (Object.keys(part).length > 0) body[field] = part;
  }
  return { body, left: leftOut(spec, mounts.length) };
}

function leftOut(spec: NonNullable<SandboxResponse['spec']>, mounted: number): string[] {
  const { env, mounts, network, rlimits } = spec;
  const secrets = env.filter(({ secret }) => secret === true).map(({ key }) => key);
  return [
    ...(secrets.length === 0 ? [] : [`the secret variables ${secrets.join(', ')}`]),
    ...((network.secrets ?? []).length === 0 ? [] : ['the network secrets']),
    ...(network.ports.length === 0 ? [] : ['the published ports']),
    ...(mounts.length === mounted ? [] : ['mounts of other kinds than volumes']),
    ...(rlimits.length === 0 ? [] : ['rlimits']),
    ...(network.dns == null && network.tls == null ? [] : ['the name servers and TLS of its network']),
  ];
}

/** The fields that are set. Null, false and empty values are the defaults of the fields here. */
function given(fields: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields as Record<string, unknown>).filter(
      ([, value]) =>
        value !== null &&
        value !== undefined &&
        value !== false &&
        !(typeof value === 'object' && Object.keys(value).length === 0),
    ),
  );
}
