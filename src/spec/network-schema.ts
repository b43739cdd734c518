/** The network of requests and of answers (contract section 2.2). */
import { Type, type Static } from 'typebox';
import {
  AnyObject,
  Field,
  Int32,
  Int64,
  Named,
  NoEffect,
  NotOffered,
  Nullable,
  Words,
} from '../http/schema.js';
import { NetworkPolicy } from '../network-policy/schema.js';
import { SecretsConfig } from './secret-schema.js';
import { MOST } from './size-limits.js';

// Requests and answers:

const PublishedPort = Named(
  'PublishedPortSpec',
  {
    guest_port: Int32({ description: 'The port in the guest.' }),
    host_port: Int32({ description: 'The port on the host.' }),
    host_bind: Type.String({ description: 'The address on the host, such as `127.0.0.1`.' }),
    protocol: Type.Optional(
      Words(['tcp', 'udp'], {
        title: 'PortProtocol',
        description: 'The protocol of a published port. Default: `tcp`.',
      }),
    ),
  },
  'A port of the guest that is reached through the host.',
);

const TlsConfig = Named(
  'TlsConfig',
  {
    enabled: Type.Optional(Type.Boolean({ description: 'Whether TLS connections are intercepted.' })),
    intercepted_ports: Type.Optional(
      Type.Array(Int32(), { description: 'The ports on which TLS is intercepted. Default: 443.' }),
    ),
    bypass: Type.Optional(
      Type.Array(Type.String(), {
        description: 'The domains that are not intercepted: exact names, or `*.suffix`.',
      }),
    ),
    verify_upstream: Type.Optional(
      Type.Boolean({ description: 'Whether the certificates of servers are verified.' }),
    ),
    upstream_ca_cert: Type.Optional(
      Type.Array(Type.String(), { description: 'PEM files of CAs that are trusted for servers.' }),
    ),
    scoped_upstream_ca_cert: Type.Optional(
      Type.Array(
        Named(
          'ScopedUpstreamCaCert',
          {
            pattern: Type.String({ description: 'The domains that the CA is trusted for.' }),
            path: Type.String({ description: 'The PEM file of the CA.' }),
          },
          'A CA that is trusted for some domains.',
        ),
        { description: 'The CAs that are trusted for some domains only.' },
      ),
    ),
    scoped_verify_upstream: Type.Optional(
      Type.Array(
        Named(
          'ScopedVerifyUpstream',
          {
            pattern: Type.String({ description: 'The domains that the setting applies to.' }),
            verify: Type.Boolean({ description: 'Whether their certificates are verified.' }),
          },
          'The verification of certificates for some domains.',
        ),
        { description: 'Exceptions from `verify_upstream` by domain.' },
      ),
    ),
    block_quic_on_intercept: Type.Optional(
      Type.Boolean({ description: 'Whether UDP to intercepted ports is dropped.' }),
    ),
    cache: Type.Optional(
      Named(
        'CertCacheConfig',
        {
          capacity: Type.Optional(Int64({ default: 1000, description: 'The most certificates to keep.' })),
          validity_hours: Type.Optional(
            Int64({ default: 24, description: 'The hours for which a certificate is valid.' }),
          ),
        },
        'The cache of certificates made for interception.',
      ),
    ),
    intercept_ca: Type.Optional(
      Named(
        'InterceptCaConfig',
        {
          cert_path: Type.Optional(
            Nullable(Type.String({ description: 'The file of the certificate. Null: one is generated.' })),
          ),
          key_path: Type.Optional(
            Nullable(Type.String({ description: 'The file of the key. Null: one is generated.' })),
          ),
        },
        'The CA that signs the certificates for interception.',
      ),
    ),
  },
  'The interception of TLS connections of a sandbox.',
);

// Requests:

export const UNKNOWN_FIELDS =
  'Unknown fields are named in the `warnings` of the answer. Those that would restrict the sandbox or give it something are refused.';

export const NetworkRequest = Named(
  'CloudNetworkSpec',
  {
    enabled: Type.Optional(
      Type.Boolean({ default: true, description: 'Whether the sandbox has a network.' }),
    ),
    max_connections: Type.Optional(
      Nullable(Int64({ description: 'The most connections at once. Null: no limit.' })),
    ),
    max_udp_connections: Type.Optional(
      Nullable(Int64({ description: 'The most UDP flows at once. Null and 0: no limit.' })),
    ),
    policy: Type.Optional(
      Field(
        Nullable(NetworkPolicy),
        'The traffic that the sandbox may have. Null: the public profile, as in `docs/runtimes.md`.',
      ),
    ),
    secrets: Type.Optional(
      Field(Nullable(SecretsConfig), 'The secrets that are injected into requests of the guest. Null: none.'),
    ),
    ports: Type.Optional(
      Nullable(
        Type.Array(PublishedPort, {
          maxItems: MOST.ports,
          description: 'The ports to publish on the host. Null: none.',
        }),
      ),
    ),
    tls: Type.Optional(Field(Nullable(TlsConfig), 'The interception of TLS connections. Null: none.')),
    strict: Type.Optional(
      Type.Boolean({
        description:
          'Whether the rules of a policy are enforced as they stand, which they always are. Official clients send it with every create.',
      }),
    ),
    dns: Type.Optional(NotOffered(Nullable(AnyObject()), 'sandboxes use the resolvers of their machine')),
    interface: Type.Optional(NotOffered(Nullable(AnyObject()), 'the runtime gives out addresses')),
    trust_host_cas: Type.Optional(
      NoEffect(Type.Unknown(), 'a sandbox trusts the certificates of its image only', false),
    ),
  },
  'The network of a sandbox. Unknown fields are refused.',
);
export type NetworkRequest = Static<typeof NetworkRequest>;

// Answers:

const SandboxSecret = Named(
  'SandboxSecretResponse',
  {
    env_var: Type.String({ description: 'The environment variable that has the placeholder in the guest.' }),
    placeholder: Type.String({ description: 'The text that stands for the secret in the guest.' }),
    allowed_hosts: Type.Array(AnyObject(), { description: 'The hosts that the secret may be sent to.' }),
    injection: AnyObject({ description: 'The parts of a request in which the secret is injected.' }),
    on_violation: Type.Optional(AnyObject({ description: 'The reaction to a violation.' })),
    require_tls_identity: Type.Optional(
      Type.Boolean({ description: 'An extension: false if the secret is also sent to unverified hosts.' }),
    ),
  },
  'A secret, without its value and the place where the value is kept.',
);

const DnsConfig = Named(
  'DnsConfig',
  {
    nameservers: Type.Optional(
      Type.Array(Type.String(), {
        description:
          'The name servers, as addresses or hosts with an optional port. Empty: those of the host.',
      }),
    ),
    query_timeout_ms: Type.Optional(
      Int64({ default: 5000, description: 'The longest wait for an answer in milliseconds.' }),
    ),
    rebind_protection: Type.Optional(
      Type.Boolean({ default: true, description: 'Whether answers with private addresses are refused.' }),
    ),
  },
  'The name resolution of a sandbox.',
);

const InterfaceOverrides = Named(
  'InterfaceOverrides',
  {
    ipv4_address: Type.Optional(Nullable(Type.String({ description: 'The IPv4 address of the guest.' }))),
    ipv4_pool: Type.Optional(
      Nullable(Type.String({ description: 'The CIDR block that IPv4 addresses are taken from.' })),
    ),
    ipv6_address: Type.Optional(Nullable(Type.String({ description: 'The IPv6 address of the guest.' }))),
    ipv6_pool: Type.Optional(
      Nullable(Type.String({ description: 'The CIDR block that IPv6 addresses are taken from.' })),
    ),
    mac: Type.Optional(
      Nullable(
        Type.Array(Int32({ maximum: 255 }), {
          minItems: 6,
          maxItems: 6,
          description: 'The six octets of the MAC address.',
        }),
      ),
    ),
    mtu: Type.Optional(Nullable(Int32({ description: 'The largest packet in bytes.' }))),
  },
  'The settings of the network interface. Null: the runtime decides.',
);

export const SandboxNetwork = Named(
  'SandboxNetworkResponse',
  {
    enabled: Type.Boolean({ description: 'Whether the sandbox has a network.' }),
    ports: Type.Array(PublishedPort, { description: 'The ports that are published on the host.' }),
    trust_host_cas: Type.Boolean({ description: 'Whether the guest trusts the CAs of the host.' }),
    dns: Type.Optional(Field(Nullable(DnsConfig), 'The name resolution. Null: that of the host.')),
    interface: Type.Optional(
      Field(Nullable(InterfaceOverrides), 'The settings of the interface. Null: the runtime decides.'),
    ),
    max_connections: Type.Optional(
      Nullable(Int64({ description: 'The most connections at once. Null: no limit.' })),
    ),
    max_udp_connections: Type.Optional(
      Int64({ description: 'An extension: the most UDP flows at once. Absent: no limit.' }),
    ),
    policy: Type.Optional(
      Field(Nullable(NetworkPolicy), 'The traffic that the sandbox may have. Null: the public profile.'),
    ),
    secrets: Type.Optional(Type.Array(SandboxSecret, { description: 'The secrets, without their values.' })),
    tls: Type.Optional(Field(Nullable(TlsConfig), 'The interception of TLS connections. Null: none.')),
  },
  'The network of a sandbox.',
);
