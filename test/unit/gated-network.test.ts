import { expect, test } from 'vitest';
import { CAPABILITIES } from '../../src/spec/capabilities.js';
import { SPECIFICATION } from '../../src/spec/specification.js';

const engine = { name: 'a', capabilities: new Set(CAPABILITIES), bounds: {} as any };
const image = { type: 'oci' as const, reference: 'a' };
const run = (network: object) =>
  SPECIFICATION.resolve({ name: 'a', image, network }, { named: new Map(), host: undefined }).runSpec;
const refusalOf = (network: object, capabilities: readonly string[] = CAPABILITIES): unknown => {
  try {
    SPECIFICATION.check({ name: 'a', image, network }, {
      ...engine,
      capabilities: new Set(capabilities),
    } as any);
    return undefined;
  } catch (error) {
    return (error as any).details.field;
  }
};
const egress = (destination: object) => ({ rules: [{ direction: 'egress', action: 'allow', destination }] });
const entry = { env_var: 'KEY', value: 'v', allowed_hosts: [{ type: 'exact', value: 'a.example' }] };

test('only a network with names, secrets or interception is gated', () => {
  const plain = [
    {},
    { dns: {} },
    { tls: {} },
    { tls: { enabled: false } },
    { policy: egress({ group: 'public' }) },
  ];
  for (const network of plain) expect(run(network).gated, JSON.stringify(network)).toBeUndefined();
  const gated = [
    { policy: egress({ domain: 'a.example' }) },
    { dns: { nameservers: ['9.9.9.9'] } },
    { tls: { enabled: true } },
    { secrets: { entries: [entry] } },
  ];
  for (const network of gated) {
    expect(run(network).gated, JSON.stringify(network)).toBeDefined();
    expect(run({ ...network, enabled: false }).gated).toBeUndefined();
  }
});

test('both forms of a secret mean the same', () => {
  const old = {
    ...entry,
    placeholder: '$MSB_KEY',
    injection: { headers: true, basic_auth: true, query_params: true, body: false },
    on_violation: { type: 'block_and_terminate' },
  };
  const since = {
    ...entry,
    substitution: { headers: true, header_fields: [], query: true, body: false },
    violation_action: { type: 'block_and_terminate' },
  };
  const secretsOf = (one: object) => run({ secrets: { entries: [one] } }).gated!.secrets;
  expect(secretsOf(since)).toEqual(secretsOf(old));
  expect(secretsOf(old)).toEqual([
    {
      name: 'KEY',
      placeholder: '$MSB_KEY',
      allowedHosts: entry.allowed_hosts,
      passthroughHosts: [],
      places: { headers: true, headerFields: [], basicAuth: true, query: true, body: false },
      onViolation: 'block_and_terminate',
      requireTlsIdentity: true,
    },
  ]);
  const passing = { ...entry, on_violation: { type: 'passthrough', hosts: [{ type: 'any' }] } };
  expect(secretsOf(passing)[0]).toMatchObject({
    passthroughHosts: [{ type: 'any' }],
    onViolation: 'block_and_log',
  });
});

test('wrong values are refused by the name of their field', () => {
  const refused: [field: string, network: object][] = [
    ['network.dns.nameservers[0]', { dns: { nameservers: ['dns.example'] } }],
    ['network.dns.nameservers[1]', { dns: { nameservers: ['[2620:fe::fe]:53', '9.9.9.9:0'] } }],
    ['network.dns.query_timeout_ms', { dns: { query_timeout_ms: 0 } }],
    ['network.tls.upstream_ca_cert[0]', { tls: { upstream_ca_cert: ['/etc/ssl/ca.pem'] } }],
    ['network.tls.bypass[0]', { tls: { bypass: ['*.*.example'] } }],
    ['network.tls.intercept_ca', { tls: { intercept_ca: { cert_path: '/a' } } }],
    ['network.tls.cache.validity_hours', { tls: { cache: { validity_hours: 0 } } }],
    ['network.interface.mac', { interface: { mac: [1, 0, 0, 0, 0, 1] } }],
    ['network.interface.mtu', { interface: { mtu: 67 } }],
    ['network.interface.ipv4_pool', { interface: { ipv4_pool: '10.0.0.0/8' } }],
    ['network.policy.rules[0].destination.domain', { policy: egress({ domain: '*.example.com' }) }],
    ['network.policy.rules[0].destination.domain_suffix', { policy: egress({ domain_suffix: 'a b' }) }],
    [
      'network.secrets.entries[0].on_violation.hosts[0].value',
      {
        secrets: {
          entries: [
            { ...entry, on_violation: { type: 'passthrough', hosts: [{ type: 'exact', value: 'a b' }] } },
          ],
        },
      },
    ],
    [
      'network.secrets.passthrough_hosts[0].value',
      { secrets: { entries: [entry], passthrough_hosts: [{ type: 'exact', value: 'a b' }] } },
    ],
    [
      'network.secrets.entries[0].allowed_hosts[0].value',
      { secrets: { entries: [{ ...entry, allowed_hosts: [{ type: 'wildcard', value: '*' }] }] } },
    ],
    [
      'network.secrets.entries[1].placeholder',
      { secrets: { entries: [entry, { ...entry, env_var: 'B', placeholder: '$MSB_KEY' }] } },
    ],
    ['network.secrets.entries[1].env_var', { secrets: { entries: [entry, { ...entry, placeholder: 'x' }] } }],
  ];
  for (const [field, network] of refused) expect(refusalOf(network), JSON.stringify(network)).toBe(field);
});

test('an engine without the ability refuses each field by its name', () => {
  const needs: [field: string, network: object][] = [
    ['network.dns', { dns: { rebind_protection: false } }],
    ['network.tls', { tls: { enabled: true } }],
    ['network.trust_host_cas', { trust_host_cas: true }],
    ['network.interface', { interface: { mtu: 1400 } }],
    ['network.secrets', { secrets: { entries: [entry] } }],
    ['network.ports', { ports: [{ guest_port: 80 }] }],
    ['network.max_udp_connections', { max_udp_connections: 5 }],
    ['network.policy.rules[0].destination.domain', { policy: egress({ domain: 'a.example' }) }],
  ];
  for (const [field, network] of needs) {
    expect(refusalOf(network, ['network', 'network_policy']), field).toBe(field);
    expect(refusalOf(network), field).toBeUndefined();
  }
});
