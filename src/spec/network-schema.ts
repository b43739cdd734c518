/** Parts of the network of requests and of answers (contract section 2.2). */
import { Type, type Static } from 'typebox';
import { Int32, Int64, Named, Nullable, Words } from '../http/schema.js';

/** A loopback address that no host name of a browser stands for. */
export const DEFAULT_BIND = '127.0.0.2';

const protocol = Type.Optional(
  Words(['tcp', 'udp'], {
    title: 'PortProtocol',
    description: 'The protocol of a published port. Default: `tcp`.',
  }),
);

export const PortToPublish = Named(
  'PortToPublish',
  {
    guest_port: Int32({ description: 'The port in the guest, 1 to 65535.' }),
    host_port: Type.Optional(
      Int32({
        default: 0,
        description: 'The port on the host, among `--published-ports`. 0: the service chooses a free one.',
      }),
    ),
    host_bind: Type.Optional(
      Type.String({
        default: DEFAULT_BIND,
        description:
          'The address on the host: a loopback address other than 127.0.0.1 and ::1, or one of `--published-addresses`.',
      }),
    ),
    protocol,
  },
  'A port of the guest to publish on the host.',
);
export type PortToPublish = Static<typeof PortToPublish>;

export const PublishedPort = Named(
  'PublishedPortSpec',
  {
    guest_port: Int32({ description: 'The port in the guest.' }),
    host_port: Int32({ description: 'The port on the host. The sandbox keeps it until it is deleted.' }),
    host_bind: Type.String({ description: 'The address on the host, such as `127.0.0.2`.' }),
    protocol,
  },
  'A port of the guest that is reached through the host.',
);
export type PublishedPort = Required<Static<typeof PublishedPort>>;

export const TlsConfig = Named(
  'TlsConfig',
  {
    enabled: Type.Optional(Type.Boolean({ description: 'Whether TLS connections are intercepted.' })),
    intercepted_ports: Type.Optional(
      Type.Array(Int32(), {
        description: 'The ports on which TLS is intercepted. Default: 443.',
      }),
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
      Type.Array(Type.String(), {
        description: 'CAs that are trusted for servers, each as PEM text. A path is refused.',
      }),
    ),
    scoped_upstream_ca_cert: Type.Optional(
      Type.Array(
        Named(
          'ScopedUpstreamCaCert',
          {
            pattern: Type.String({
              description: 'The domains that the CA is trusted for.',
            }),
            path: Type.String({ description: 'The CA as PEM text. A path is refused.' }),
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
            pattern: Type.String({
              description: 'The domains that the setting applies to.',
            }),
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
export type TlsRequest = Static<typeof TlsConfig>;

export const DnsConfig = Named(
  'DnsConfig',
  {
    nameservers: Type.Optional(
      Type.Array(Type.String(), {
        description:
          'The name servers, as addresses with an optional port. A name is refused. Empty: those of the host.',
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

export const InterfaceOverrides = Named(
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
