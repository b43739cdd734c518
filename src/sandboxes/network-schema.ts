/** The network part of a sandbox: what is asked for, and what is shown (contract section 2.2). */
import { Type, type Static } from 'typebox';
import { AnyObject, Int32, Int64, Named, Nullable, Variants, Words } from '../http/schema.js';

const Action = Words(['allow', 'deny'], { title: 'Action' });
const Protocol = Words(['tcp', 'udp', 'icmpv4', 'icmpv6'], { title: 'Protocol' });
const Direction = Words(['egress', 'ingress', 'any'], { title: 'Direction' });
const DestinationGroup = Words(
  ['public', 'loopback', 'private', 'link_local', 'metadata', 'multicast', 'host'],
  { title: 'DestinationGroup' },
);

const Destination = Type.Union(
  [
    Words(['any']),
    Type.Object({ cidr: Type.String({ description: 'An IP address or CIDR block.' }) }),
    Type.Object({ domain: Type.String({ minLength: 1, description: 'Exactly this domain.' }) }),
    Type.Object({
      domain_suffix: Type.String({ minLength: 1, description: 'This domain and all below it.' }),
    }),
    Type.Object({ group: DestinationGroup }),
  ],
  { title: 'Destination' },
);

const PortRange = Named('PortRange', {
  start: Int32({ maximum: 65_535, description: 'First port, inclusive.' }),
  end: Int32({ maximum: 65_535, description: 'Last port, inclusive.' }),
});

const Rule = Named('Rule', {
  direction: Direction,
  destination: Destination,
  action: Action,
  ports: Type.Optional(Type.Array(PortRange, { description: 'Of the guest; empty is any.' })),
  protocols: Type.Optional(Type.Array(Protocol, { description: 'Empty is any.' })),
});

const NetworkPolicy = Named(
  'NetworkPolicy',
  {
    default_egress: Type.Optional(Action),
    default_ingress: Type.Optional(Action),
    rules: Type.Optional(Type.Array(Rule)),
  },
  'Rules in order; in each direction the first match wins. What matches none falls to the default, `deny` unless said.',
);
export type NetworkPolicy = Static<typeof NetworkPolicy>;

// In both.

const PublishedPort = Named('PublishedPortSpec', {
  guest_port: Int32(),
  host_port: Int32(),
  host_bind: Type.String({ description: 'Address on the host; loopback unless said.' }),
  protocol: Type.Optional(Words(['tcp', 'udp'], { title: 'PortProtocol' })),
});

const TlsConfig = Named('TlsConfig', {
  enabled: Type.Optional(Type.Boolean()),
  intercepted_ports: Type.Optional(Type.Array(Int32())),
  bypass: Type.Optional(Type.Array(Type.String())),
  verify_upstream: Type.Optional(Type.Boolean()),
  upstream_ca_cert: Type.Optional(Type.Array(Type.String())),
  scoped_upstream_ca_cert: Type.Optional(
    Type.Array(Named('ScopedUpstreamCaCert', { pattern: Type.String(), path: Type.String() })),
  ),
  scoped_verify_upstream: Type.Optional(
    Type.Array(Named('ScopedVerifyUpstream', { pattern: Type.String(), verify: Type.Boolean() })),
  ),
  block_quic_on_intercept: Type.Optional(Type.Boolean()),
  cache: Type.Optional(
    Named('CertCacheConfig', {
      capacity: Type.Optional(Int64({ default: 1000 })),
      validity_hours: Type.Optional(Int64({ default: 24 })),
    }),
  ),
  intercept_ca: Type.Optional(
    Named('InterceptCaConfig', {
      cert_path: Type.Optional(Nullable(Type.String())),
      key_path: Type.Optional(Nullable(Type.String())),
    }),
  ),
});

// What is asked for.

const HostPattern = Variants(
  'type',
  [
    Type.Object({ type: Type.Literal('exact'), value: Type.String({ minLength: 1 }) }),
    Type.Object({ type: Type.Literal('wildcard'), value: Type.String({ minLength: 1 }) }),
    Type.Object({ type: Type.Literal('any') }),
  ],
  { title: 'CloudHostPattern' },
);

const SecretInjection = Named('SecretInjection', {
  headers: Type.Optional(Type.Boolean({ default: true })),
  basic_auth: Type.Optional(Type.Boolean({ default: true })),
  query_params: Type.Optional(Type.Boolean({ default: false })),
  body: Type.Optional(Type.Boolean({ default: false })),
});

const ViolationAction = Variants(
  'type',
  [
    Type.Object({ type: Words(['block', 'block_and_log', 'block_and_terminate']) }),
    Type.Object({ type: Type.Literal('passthrough'), hosts: Type.Array(HostPattern) }),
  ],
  { title: 'CloudViolationAction' },
);

const SecretEntry = Named('CloudSecretEntry', {
  env_var: Type.String(),
  placeholder: Type.String(),
  value: Type.Optional(Type.String({ description: 'Never stored in clear and never returned.' })),
  source: Type.Optional(
    Nullable(
      Variants('type', [
        Type.Object({ type: Type.Literal('env'), var: Type.String() }),
        Type.Object({ type: Type.Literal('store'), reference: Type.String() }),
      ]),
    ),
  ),
  allowed_hosts: Type.Optional(Type.Array(HostPattern)),
  injection: Type.Optional(SecretInjection),
  on_violation: Type.Optional(Nullable(ViolationAction)),
  require_tls_identity: Type.Optional(Type.Boolean({ default: true })),
});

export const NetworkRequest = Named(
  'CloudNetworkSpec',
  {
    enabled: Type.Optional(Type.Boolean({ default: true })),
    max_connections: Type.Optional(Nullable(Int64())),
    policy: Type.Optional(Nullable(NetworkPolicy)),
    secrets: Type.Optional(
      Nullable(
        Named('CloudSecretsConfig', {
          entries: Type.Optional(Type.Array(SecretEntry)),
          on_violation: Type.Optional(Nullable(ViolationAction)),
        }),
      ),
    ),
    ports: Type.Optional(Nullable(Type.Array(PublishedPort))),
    tls: Type.Optional(Nullable(TlsConfig)),
  },
  'Unknown keys are accepted and ignored.',
);
export type NetworkRequest = Static<typeof NetworkRequest>;
export type SecretEntry = Static<typeof SecretEntry>;

// What is shown.

const SandboxSecret = Named(
  'SandboxSecretResponse',
  {
    env_var: Type.String(),
    placeholder: Type.String(),
    allowed_hosts: Type.Array(AnyObject()),
    injection: AnyObject(),
    on_violation: Type.Optional(AnyObject()),
  },
  'A secret without its value and without where the value is kept.',
);

const DnsConfig = Named('DnsConfig', {
  nameservers: Type.Optional(Type.Array(Type.String())),
  query_timeout_ms: Type.Optional(Int64({ default: 5000 })),
  rebind_protection: Type.Optional(Type.Boolean({ default: true })),
});

const InterfaceOverrides = Named('InterfaceOverrides', {
  ipv4_address: Type.Optional(Nullable(Type.String())),
  ipv4_pool: Type.Optional(Nullable(Type.String())),
  ipv6_address: Type.Optional(Nullable(Type.String())),
  ipv6_pool: Type.Optional(Nullable(Type.String())),
  mac: Type.Optional(Nullable(Type.Array(Int32({ maximum: 255 }), { minItems: 6, maxItems: 6 }))),
  mtu: Type.Optional(Nullable(Int32())),
});

export const SandboxNetwork = Named('SandboxNetworkResponse', {
  enabled: Type.Boolean(),
  ports: Type.Array(PublishedPort),
  trust_host_cas: Type.Boolean(),
  dns: Type.Optional(Nullable(DnsConfig)),
  interface: Type.Optional(Nullable(InterfaceOverrides)),
  max_connections: Type.Optional(Nullable(Int64())),
  policy: Type.Optional(Nullable(NetworkPolicy)),
  secrets: Type.Optional(Type.Array(SandboxSecret)),
  tls: Type.Optional(Nullable(TlsConfig)),
});
