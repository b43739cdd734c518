import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { explainPort } from '../../src/engines/docker/network/published-ports.js';
import { machineOnlyRules } from '../../src/machine-network/machine-only-ports.js';
import { dependsOnSource, mayArrive } from '../../src/network-policy/arrivals.js';
import type { NetworkPolicy } from '../../src/network-policy/schema.js';
import { canonicalAddress, isLoopback, overlap } from '../../src/spec/published-port.js';

const port = (more: object) => ({
  guest_port: 80,
  host_port: 8080,
  host_bind: '127.0.0.1',
  protocol: 'tcp' as const,
  ...more,
});

test('the answers of engines that mean a port in use name the port', () => {
  const failed = 'driver failed programming external connectivity on endpoint sandkeep-net-x (30794759): ';
  for (const [said, named] of [
    ['Bind for 127.0.0.1:8080 failed: port is already allocated', '127.0.0.1:8080'],
    [
      'Error starting userland proxy: listen tcp4 127.0.0.1:8080: bind: address already in use',
      '127.0.0.1:8080',
    ],
    ['Error starting userland proxy: listen udp6 [::1]:53: bind: address already in use', '[::1]:53'],
    [
      'failed to bind host port for 127.0.0.1:8080:172.17.0.2:80/tcp: address already in use',
      '127.0.0.1:8080',
    ],
    ['failed to bind host port 0.0.0.0:8080/tcp: address already in use', '0.0.0.0:8080'],
    ['failed to bind host port for [::1]:8080:172.17.0.2:80/tcp: address already in use', '[::1]:8080'],
  ])
    expect([said, explainPort(failed + said)]).toEqual([
      said,
      expect.stringContaining(`has the port ${named} of network.ports`),
    ]);
  expect(explainPort('listen tcp4 10.9.9.9:8080: bind: cannot assign requested address')).toContain(
    'does not have',
  );
  expect(explainPort('no space left on device')).toBeUndefined();
});

test('a port of loopback addresses alone is closed to other sources', () => {
  expect(machineOnlyRules([port({}), port({ host_bind: '::1' })])).toEqual([
    'meta l4proto tcp th dport 80 ip saddr != @host4 drop',
    'meta l4proto tcp th dport 80 ip6 saddr != @host6 drop',
  ]);
  expect(machineOnlyRules([port({}), port({ host_bind: '0.0.0.0' })])).toEqual([]);
  expect(machineOnlyRules([port({ protocol: 'udp' }), port({ host_bind: '0.0.0.0' })])).toHaveLength(2);
});

test('addresses have one text, and those that stand for others are none', () => {
  expect(['127.0.0.1', '::1', '0:0:0:0:0:0:0:1', '2001:DB8::0:7'].map(canonicalAddress)).toEqual([
    '127.0.0.1',
    '::1',
    '::1',
    '2001:db8::7',
  ]);
  for (const text of [
    '::ffff:127.0.0.1',
    '::ffff:7f00:1',
    'fe80::1%eth0',
    'localhost',
    '127.1',
    '0x7f.0.0.1',
    '',
  ])
    expect([text, canonicalAddress(text)]).toEqual([text, undefined]);
  expect(['127.9.9.9', '::1', '0.0.0.0', '::', '10.0.0.1'].map(isLoopback)).toEqual([
    true,
    true,
    false,
    false,
    false,
  ]);
  const pairs = [
    [{}, {}, true],
    [{}, { host_bind: '0.0.0.0' }, true],
    [{ host_bind: '::1' }, { host_bind: '0.0.0.0' }, false],
    [{ host_bind: '::' }, { host_bind: '::1' }, true],
    [{}, { protocol: 'udp' }, false],
    [{}, { host_port: 81 }, false],
  ] as const;
  for (const [one, two, shared] of pairs)
    for (const [first, second] of [
      [one, two],
      [two, one],
    ])
      expect([one, two, overlap(port(first!) as never, port(second!) as never)]).toEqual([one, two, shared]);
});

describe('a policy', () => {
  const destination = fc.constantFrom<NonNullable<NetworkPolicy['rules']>[number]['destination'][]>(
    'any' as never,
    { group: 'host' } as never,
    { group: 'public' } as never,
    { cidr: '172.16.0.0/12' } as never,
    { domain: 'a.example' } as never,
  );
  const rule = fc.record({
    direction: fc.constantFrom('ingress', 'any', 'egress'),
    destination,
    action: fc.constantFrom('allow', 'deny'),
    ports: fc.constantFrom([], [{ start: 80, end: 80 }], [{ start: 81, end: 90 }]),
    protocols: fc.constantFrom([], ['tcp'], ['udp']),
  });

  test('is refused only if the machine cannot get in, whatever its addresses are', () => {
    let refused = 0;
    fc.assert(
      fc.property(fc.array(rule, { maxLength: 6 }), fc.constantFrom('allow', 'deny'), (rules, initial) => {
        const policy = { default_ingress: initial, rules } as unknown as NetworkPolicy;
        // The block has the machine's address or not.
        const reached = [true, false].some((inBlock) => {
          const first = rules.find(
            ({ direction, destination: to, ports, protocols }) =>
              direction !== 'egress' &&
              (ports.length === 0 || ports[0].start === 80) &&
              (protocols.length === 0 || protocols[0] === 'tcp') &&
              ((to as unknown) === 'any' ||
                JSON.stringify(to) === '{"group":"host"}' ||
                ('cidr' in (to as object) && inBlock)),
          );
          return (first?.action ?? initial) === 'allow';
        });
        // Two blocks may be different ones, so a policy with blocks may be taken for one that opens.
        const hasBlocks = rules.some(({ destination: to }) => 'cidr' in Object(to));
        if (reached || !hasBlocks) expect(mayArrive(policy, 'tcp', 80, 'host')).toBe(reached);
        if (!reached) refused += 1;
        if (mayArrive(policy, 'tcp', 80, 'host')) expect(mayArrive(policy, 'tcp', 80, 'anywhere')).toBe(true);
      }),
    );
    expect(refused).toBeGreaterThan(0);
  });

  test('depends on the source where a rule before the one for all does', () => {
    const about = (...rules: object[]) => ({ rules }) as unknown as NetworkPolicy;
    const any = { direction: 'ingress', destination: 'any', action: 'allow' };
    const some = { ...any, destination: { group: 'public' } };
    expect(dependsOnSource(about(), 'tcp', 80)).toBe(false);
    expect(dependsOnSource(about(any, some), 'tcp', 80)).toBe(false);
    expect(dependsOnSource(about(some, any), 'tcp', 80)).toBe(true);
    expect(dependsOnSource(about({ ...some, protocols: ['udp'] }, any), 'tcp', 80)).toBe(false);
  });
});
