import fc from 'fast-check';
import { expect, it } from 'vitest';
import { canonicalName, decideName, isDeniedByDomain } from '../../src/network-policy/domains.js';

const NAMES = ['example.com', 'a.example.com', 'b.a.example.com', 'notexample.com', 'com', 'other.test'];
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
      const parents = new Set(labels.map((_, from) => labels.slice(from).join('.')));
      const position = rules.findIndex(({ destination: to }) =>
        'domain' in to ? to.domain === name : parents.has(to.domain_suffix),
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
