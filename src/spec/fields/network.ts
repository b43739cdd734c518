import { Type } from 'typebox';
import { Field, Int64, Nullable } from '../../http/schema.js';
import { blocksEverything } from '../../network-policy/order.js';
import { NetworkPolicy } from '../../network-policy/schema.js';
import { field, group, type OtherFields } from '../field.js';
import { gatedNetwork } from '../gated-network.js';
import { SandboxSecret, SecretsConfig } from '../secret-schema.js';
import { showSecrets } from '../show-secrets.js';
import { tls } from './interception.js';
import { interfaceOverrides } from './interface.js';
import { dns } from './names.js';
import { checkPolicy, policyRequirements } from './policy.js';
import { ports } from './ports.js';
import { checkSecrets } from './secrets.js';

const NETWORK =
  'the operator runs "sandkeep doctor", which shows the reason; on Kubernetes, a cluster must enforce NetworkPolicy, or the operator vouches for its network with --kubernetes-network trusted';

/** A policy that allows nothing needs no network. */
function hasNetwork({ network: { enabled = true, policy } = {} }: OtherFields): boolean {
  return enabled && !(policy && blocksEverything(policy));
}

const enabled = field({
  schema: Type.Boolean({ default: true, description: 'Whether the sandbox has a network.' }),
  answer: Type.Boolean({ description: 'Whether the sandbox has a network.' }),
  requires: (value, { whole }) => [
    hasNetwork(whole)
      ? { capability: 'network', what: 'give a network to sandboxes', remedy: NETWORK }
      : {
          capability: 'network_off',
          field: value ? 'network.policy' : 'network.enabled',
          what: 'cut sandboxes off',
          remedy: NETWORK,
        },
  ],
  run: (_, { whole }) => ({ networkEnabled: hasNetwork(whole) }),
});

const trustHostCas = field({
  schema: Type.Boolean({
    description:
      'Whether the programs of the sandbox trust the certificate authorities of the machine, besides those of its image.',
  }),
  answer: Type.Boolean({ description: 'Whether the guest trusts the CAs of the host.' }),
  default: false,
  requires: (value) => [value && { capability: 'host_authorities', what: 'trust those of its machine' }],
  run: (value) => (value ? { trustHostCas: true } : {}),
});

const maxConnections = field({
  schema: Nullable(Int64({ description: 'The most connections at once. Null: no limit.' })),
  default: null,
  requires: (value) => [
    value !== null && { capability: 'connection_limit', what: 'limit the number of connections' },
  ],
  run: (value, { whole }) => {
    const udp = whole.network?.max_udp_connections || null;
    return value === null && udp === null ? {} : { networkLimits: { tcp: value, udp } };
  },
});

const maxUdpConnections = field({
  schema: Nullable(Int64({ description: 'The most UDP flows at once. Null and 0: no limit.' })),
  answer: Type.Optional(
    Int64({ description: 'An extension: the most UDP flows at once. Absent: no limit.' }),
  ),
  default: null,
  requires: (value) => [
    (value ?? 0) > 0 && { capability: 'connection_limit', what: 'limit the number of UDP flows' },
  ],
  show: (value) => value || undefined,
});

const record = field({
  schema: Type.Boolean({
    default: false,
    description:
      'An extension: whether each destination of the sandbox becomes an audit event. False: as the organization chooses.',
  }),
  answer: Type.Optional(
    Type.Boolean({ description: 'An extension: each destination of the sandbox becomes an audit event.' }),
  ),
  requires: (value) => [
    value && { capability: 'network_record', what: 'record the destinations of a sandbox' },
  ],
  show: (value) => value || undefined,
  run: (value) => (value ? { networkRecord: true } : {}),
});

const policy = field({
  schema: Field(
    Nullable(NetworkPolicy),
    'The traffic that the sandbox may have. Null: the public profile, as in `docs/runtimes.md`.',
  ),
  answer: Type.Optional(
    Field(Nullable(NetworkPolicy), 'The traffic that the sandbox may have. Null: the public profile.'),
  ),
  default: null,
  check(value) {
    if (value) checkPolicy(value);
  },
  requires: (value, { whole }) =>
    value && hasNetwork(whole)
      ? [{ capability: 'network_policy', what: 'enforce a network policy' }, ...policyRequirements(value)]
      : [],
  run: (value) => ({ networkPolicy: value }),
});

const secrets = field({
  schema: Field(
    Nullable(SecretsConfig),
    'The secrets that are injected into requests of the guest. Null: none.',
  ),
  answer: Type.Optional(Type.Array(SandboxSecret, { description: 'The secrets, without their values.' })),
  default: null,
  check(value) {
    if (value) checkSecrets(value, 'network.secrets');
  },
  requires: (value) => [
    (value?.entries ?? []).length > 0 && { capability: 'secrets', what: 'inject secrets' },
  ],
  show: (value) => showSecrets(value ?? {}),
  seal: (value) => ({
    values: Object.fromEntries((value?.entries ?? []).map((entry) => [entry.env_var, entry.value ?? ''])),
  }),
});

const strict = field({
  schema: Type.Boolean({
    description:
      'Whether the first bytes of a connection must name the domain that a rule opens. False: an address of the domain is enough.',
    default: true,
  }),
  answer: null,
  run: (_, { whole }) => {
    const gated = hasNetwork(whole) ? gatedNetwork(whole.network ?? {}) : undefined;
    return gated ? { gated } : {};
  },
});

export const network = group({
  request: {
    title: 'CloudNetworkSpec',
    description: 'The network of a sandbox. Unknown fields are refused.',
  },
  answer: { title: 'SandboxNetworkResponse', description: 'The network of a sandbox.' },
  restricts: true,
  fields: {
    enabled,
    ports,
    trust_host_cas: trustHostCas,
    dns,
    interface: interfaceOverrides,
    max_connections: maxConnections,
    max_udp_connections: maxUdpConnections,
    record,
    policy,
    secrets,
    tls,
    strict,
  },
});
