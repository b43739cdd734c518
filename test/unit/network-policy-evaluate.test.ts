import fc from 'fast-check';
import { expect, it } from 'vitest';
import { Evaluator, type Attempt } from '../../src/network-policy/evaluate.js';
import { decideName } from '../../src/network-policy/domains.js';
import type { NetworkPolicy, Rule } from '../../src/network-policy/schema.js';
import { openableGroups, policy, PORTS, verdict, WHAT } from '../support/docker-policy-oracle.js';

/** The machine of the oracle. */
const SURROUNDINGS = {
  hosts: ['10.200.0.1', '45.45.45.45', 'fd00:200::1', '2a00:45::45'],
  resolvers: ['9.9.9.9', '10.53.53.53', '2620:fe::fe', 'fd53::53'],
  neighbours: ['10.200.0.2/24', 'fd00:200::2/64'],
};
const RUNS = 2_000;

/** Names, and all that each of them is inside of, by hand. */
const INSIDE: Record<string, string[]> = {
  'a.example': ['a.example', 'example'],
  'b.a.example': ['b.a.example', 'a.example', 'example'],
  'ba.example': ['ba.example', 'example'],
  'a.example.net': ['a.example.net', 'example.net', 'net'],
  example: ['example'],
  '_srv.b.net': ['_srv.b.net', 'b.net', 'net'],
};
const NAMES = Object.keys(INSIDE);
/** How people write names in rules. */
const WRITTEN: Record<string, string> = {
  'A.Example': 'a.example',
  'example.': 'example',
  NET: 'net',
  'B.a.EXAMPLE.': 'b.a.example',
};

const written = fc.constantFrom(...new Set(Object.values(INSIDE).flat()), ...Object.keys(WRITTEN));
const domainRule = fc.record({
  direction: fc.constantFrom('egress' as const, 'any' as const, 'ingress' as const),
  destination: fc.oneof(fc.record({ domain: written }), fc.record({ domain_suffix: written })),
  action: fc.constantFrom('allow' as const, 'deny' as const),
  protocols: fc.subarray<'tcp' | 'udp'>(['tcp', 'udp']),
  ports: fc.oneof(
    fc.constant([]),
    fc.constantFrom(...PORTS).map((port) => [{ start: port, end: port }]),
  ),
}) as fc.Arbitrary<Rule>;
/** Rules by domain at random places between the others. */
const mixed: fc.Arbitrary<NetworkPolicy> = fc
  .tuple(policy, fc.array(fc.tuple(domainRule, fc.nat(8)), { maxLength: 5 }))
  .map(([made, domains]) => {
    const rules = [...(made.rules ?? [])];
    for (const [rule, place] of domains) rules.splice(place, 0, rule);
    return { ...made, rules };
  });
const attempt: fc.Arbitrary<Attempt> = fc.record({
  carrier: fc.constantFrom('tcp' as const, 'udp' as const),
  address: fc.constantFrom(...Object.keys(WHAT)),
  port: fc.constantFrom(...PORTS),
  names: fc.subarray(NAMES),
  claims: fc.subarray(NAMES),
});

/** A rule by domain about the name becomes one for everything, and another one disappears. */
function withoutDomains(rules: Rule[], { names, claims = [] }: Pick<Attempt, 'names' | 'claims'>): Rule[] {
  return rules.flatMap((rule) => {
    if (typeof rule.destination === 'string') return [rule];
    const isExact = 'domain' in rule.destination;
    const text =
      'domain' in rule.destination
        ? rule.destination.domain
        : 'domain_suffix' in rule.destination
          ? rule.destination.domain_suffix
          : undefined;
    if (text === undefined) return [rule];
    const plain = WRITTEN[text] ?? text;
    const known = rule.action === 'deny' ? new Set([...names, ...claims]) : new Set(names);
    const isMatch = [...known].some((name) => (isExact ? name === plain : INSIDE[name]!.includes(plain)));
    return isMatch ? [{ ...rule, destination: 'any' as const }] : [];
  });
}

it('decides as the rules of the kernel do, with names too', () => {
  fc.assert(
    fc.property(mixed, openableGroups, attempt, (tried, open, made) => {
      const evaluator = new Evaluator(tried, { ...SURROUNDINGS, openableGroups: open });
      const found = evaluator.decide(made);
      const packet = { way: 'egress', peer: made.address, protocol: made.carrier, port: made.port } as const;
      const plain = { ...tried, rules: withoutDomains(tried.rules ?? [], made) };
      expect(found.action).toBe(verdict(plain, packet, open));
      // The rule it names is about this direction, and has that action.
      if (typeof found.rule !== 'number') return;
      const rule = tried.rules![found.rule]!;
      expect([rule.action, rule.direction === 'ingress']).toEqual([found.action, false]);
    }),
    { numRuns: RUNS },
  );
});

it('lets a name be resolved whenever some connection to it can be allowed', () => {
  const holds = fc.property(
    mixed,
    openableGroups,
    attempt,
    fc.constantFrom(...NAMES),
    (tried, open, made, name) => {
      const evaluator = new Evaluator(tried, { ...SURROUNDINGS, openableGroups: open });
      // Destinations of names are not the resolvers of the machine.
      if (WHAT[made.address]!.some((group) => group === 'host' || group === 'resolver')) return true;
      const { action } = evaluator.decide({ ...made, names: [name], claims: [] });
      return action === 'deny' || decideName(tried, name).action === 'allow';
    },
  );
  expect(fc.defaultReportMessage(fc.check(holds, { numRuns: RUNS }))).toBeUndefined();
});

it('never opens what only the operator opens', () => {
  const everything = new Evaluator(
    {
      default_egress: 'allow',
      rules: [{ direction: 'any', destination: { domain_suffix: 'example' }, action: 'allow' }],
    },
    { ...SURROUNDINGS, openableGroups: [] },
  );
  for (const address of ['10.200.0.77', '10.200.0.1', '169.254.169.254', 'fe80::1'])
    expect(everything.decide({ carrier: 'tcp', address, port: 443, names: ['a.example'] }), address).toEqual({
      action: 'deny',
      rule: 'guard',
    });
});
