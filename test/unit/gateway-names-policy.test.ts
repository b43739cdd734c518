import fc from 'fast-check';
import { expect, it } from 'vitest';
import { canonicalName, decideName, isDeniedByDomain, mayResolve } from '../../src/network-policy/domains.js';
import { Evaluator } from '../../src/network-policy/evaluate.js';
import type { NetworkPolicy, Rule } from '../../src/network-policy/schema.js';

const NAMES = ['example.com', 'a.example.com', 'b.a.example.com', 'notexample.com', 'com', 'other.test'];
const ADDRESSES = ['93.184.215.14', '10.1.2.3', '192.168.1.1', '100.64.0.1', '169.254.1.1', '224.0.0.1'];
const SURROUNDINGS = { hosts: ['10.77.0.1'], resolvers: [], neighbours: [], openableGroups: [] };

const destination: fc.Arbitrary<Rule['destination']> = fc.oneof(
  fc.constant('any' as const),
  fc.constantFrom(...NAMES, 'Example.COM.', '-wrong-').map((domain) => ({ domain })),
  fc.constantFrom(...NAMES, 'EXAMPLE.com').map((suffix) => ({ domain_suffix: suffix })),
  fc.constantFrom('10.0.0.0/8', '0.0.0.0/0', '93.184.215.14').map((cidr) => ({ cidr })),
  fc.constantFrom('public' as const, 'private' as const, 'host' as const).map((group) => ({ group })),
);
const rule: fc.Arbitrary<Rule> = fc.record(
  {
    direction: fc.constantFrom('egress' as const, 'ingress' as const, 'any' as const),
    action: fc.constantFrom('allow' as const, 'deny' as const),
    destination,
    protocols: fc.subarray(['tcp' as const, 'udp' as const, 'icmpv4' as const]),
    ports: fc.subarray([
      { start: 80, end: 80 },
      { start: 443, end: 450 },
    ]),
  },
  { requiredKeys: ['direction', 'action', 'destination'] },
);
const policies: fc.Arbitrary<NetworkPolicy> = fc.record(
  {
    rules: fc.array(rule, { maxLength: 6 }),
    default_egress: fc.constantFrom('allow' as const, 'deny' as const),
  },
  { requiredKeys: ['rules'] },
);

it('resolves every name to which some connection is allowed', () => {
  fc.assert(
    fc.property(policies, fc.constantFrom(...NAMES), (policy, name) => {
      if (mayResolve(policy, name)) return;
      const evaluator = new Evaluator(policy, SURROUNDINGS);
      for (const address of ADDRESSES)
        for (const carrier of ['tcp', 'udp'] as const)
          for (const port of [80, 443, 445, 8_080])
            expect(evaluator.decide({ carrier, address, port, names: [name] }).action).toBe('deny');
    }),
    { numRuns: 3_000 },
  );
});

it('decides by the first rule that knows the name, when all rules are by whole domains', () => {
  const byDomain = fc.record({
    direction: fc.constant('egress' as const),
    action: fc.constantFrom('allow' as const, 'deny' as const),
    destination: fc.oneof(
      fc.constantFrom(...NAMES).map((domain) => ({ domain })),
      fc.constantFrom(...NAMES).map((suffix) => ({ domain_suffix: suffix })),
    ),
  });
  fc.assert(
    fc.property(fc.array(byDomain, { maxLength: 6 }), fc.constantFrom(...NAMES), (rules, name) => {
      const labels = name.split('.');
      const parents = labels.map((_, from) => labels.slice(from).join('.'));
      const position = rules.findIndex(({ destination: to }) =>
        'domain' in to ? to.domain === name : parents.includes(to.domain_suffix),
      );
      const action = position < 0 ? 'deny' : rules[position]!.action;
      expect(decideName({ rules }, name)).toEqual({ action, rule: position < 0 ? 'default' : position });
      expect(isDeniedByDomain({ rules }, name)).toBe(position >= 0 && action === 'deny');
    }),
  );
});

it('compares names in one form', () => {
  const forms: [string, string | undefined][] = [
    ['EXAMPLE.com.', 'example.com'],
    ['Bücher.example', 'xn--bcher-kva.example'],
    ['BÜCHER.example.', 'xn--bcher-kva.example'],
    ['bücher。example。', 'xn--bcher-kva.example'],
    ['xn--BCHER-kva.example', 'xn--bcher-kva.example'],
    ['_ldap._tcp.example.com', '_ldap._tcp.example.com'],
    ['r3---sn-x.example.com', 'r3---sn-x.example.com'],
    [`${'a'.repeat(63)}.example`, `${'a'.repeat(63)}.example`],
    [`${'a'.repeat(64)}.example`, undefined],
    [`${'a.'.repeat(126)}a`, `${'a.'.repeat(126)}a`],
    [`${'a.'.repeat(127)}a`, undefined],
    ...[
      '',
      '.',
      '..',
      'a..b',
      '.a',
      'a..',
      '-a.b',
      'a-.b',
      'a b.c',
      '*.a',
      'a/b',
      'a@b',
      'a:1',
      '[::1]',
      'a\0.b',
      'a%2eb',
    ].map((text): [string, undefined] => [text, undefined]),
  ];
  for (const [text, name] of forms) expect([text, canonicalName(text)]).toEqual([text, name]);
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 30 }), (text) => {
      const name = canonicalName(text);
      if (name !== undefined) expect(canonicalName(name)).toBe(name);
    }),
  );
});
