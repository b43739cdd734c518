import { describe, expect, test } from 'vitest';
import { compilePolicy } from '../../src/machine-network/compile-policy.js';
import { PUBLIC_PROFILE } from '../../src/network-policy/public-profile.js';
import type { NetworkPolicy } from '../../src/network-policy/schema.js';

const ESTABLISHED = 'ct state established,related accept';
const CHAINS = [
  { chain: 'leaving', loopback: 'oifname "lo" accept' },
  { chain: 'arriving', loopback: 'iifname "lo" accept' },
];
const POLICIES: Record<string, NetworkPolicy> = {
  'the public profile': PUBLIC_PROFILE,
  'allow all': { default_egress: 'allow', default_ingress: 'allow' },
  'allow all by rules': { rules: [{ direction: 'any', destination: 'any', action: 'allow' }] },
  'deny all': {},
};

function rulesOf(chain: string, policy: NetworkPolicy, bandwidthMbits: number): string[] {
  const script = compilePolicy(policy, {
    hosts: ['10.0.0.1'],
    resolvers: [],
    neighbours: ['10.0.0.2/24'],
    openableGroups: [],
    bandwidthMbits,
  });
  const body = new RegExp(`^ {2}chain ${chain} \\{\\n(.*?)^ {2}\\}`, 'ms').exec(script)![1]!;
  return body.split('\n').map((line) => line.trim());
}

describe('the bandwidth of a network', () => {
  const cases = Object.entries(POLICIES).flatMap(([name, policy]) =>
    CHAINS.map((one) => ({ name, policy, ...one })),
  );

  test.each(cases)('is bounded under $name for all packets $chain but those of loopback', (one) => {
    const rules = rulesOf(one.chain, one.policy, 250);
    const packets = rules.indexOf('limit rate over 50000/second burst 50000 packets drop');
    expect(packets).toBeGreaterThan(rules.indexOf(one.loopback));
    expect(rules[packets + 1]).toBe('limit rate over 31250000 bytes/second burst 67108864 bytes drop');
    expect(rules.indexOf(ESTABLISHED)).toBeGreaterThan(packets + 1);
    expect(rules.slice(0, packets).filter((rule) => rule.endsWith('accept'))).toEqual(
      [
        ...(one.chain === 'leaving' ? ['type filter hook output priority mangle; policy drop;'] : []),
        one.loopback,
      ].filter((rule) => rule.endsWith('accept')),
    );
  });

  test.each(CHAINS)('is unbounded with 0 ($chain)', ({ chain }) => {
    expect(rulesOf(chain, PUBLIC_PROFILE, 0).join()).not.toMatch(/bytes\/second|packets drop/);
  });

  test.each([
    { mbits: 1, bytes: 125_000, packets: 50_000 },
    { mbits: 251, bytes: 31_375_000, packets: 50_200 },
    { mbits: 100_000, bytes: 12_500_000_000, packets: 20_000_000 },
  ])('of $mbits Mbit/s has $bytes bytes and $packets packets a second', ({ mbits, bytes, packets }) => {
    const rules = rulesOf('leaving', PUBLIC_PROFILE, mbits).join('\n');
    expect(rules).toContain(`limit rate over ${bytes} bytes/second burst`);
    expect(rules).toContain(`limit rate over ${packets}/second burst ${packets} packets drop`);
  });
});
