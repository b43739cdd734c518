/** A network policy in requests and answers (contract section 2.2). */
import { Type, type Static } from 'typebox';
import { formTexts } from '../http/sample.js';
import { Field, Int32, Named, Words } from '../http/schema.js';

const Action = Words(['allow', 'deny'], {
  title: 'Action',
  description: 'Whether the traffic is allowed or denied.',
});
const Protocol = Words(['tcp', 'udp', 'icmpv4', 'icmpv6'], {
  title: 'Protocol',
  description: 'A network protocol.',
});
const Direction = Words(['egress', 'ingress', 'any'], {
  title: 'Direction',
  description: 'The direction of traffic as the guest sees it: `egress` leaves it.',
});
const DestinationGroup = Words(
  ['public', 'loopback', 'private', 'link_local', 'metadata', 'multicast', 'host'],
  {
    title: 'DestinationGroup',
    description: 'A group of addresses. `docs/runtimes.md` says which addresses each has.',
  },
);

const DESTINATION_FORMS = [
  Type.Object({
    cidr: Type.String({ description: 'An IP address or a CIDR block.', examples: ['203.0.113.0/24'] }),
  }),
  Type.Object({
    domain: Type.String({
      minLength: 1,
      description: 'A domain, without its subdomains.',
      examples: ['api.example.com'],
    }),
  }),
  Type.Object({
    domain_suffix: Type.String({
      minLength: 1,
      description: 'A domain with all its subdomains.',
      examples: ['example.com'],
    }),
  }),
  Type.Object({ group: DestinationGroup }),
] as const;
/** A destination other than `any` has exactly one of these keys. */
export const DESTINATION_KEYS: readonly string[] = DESTINATION_FORMS.flatMap(({ properties }) =>
  Object.keys(properties),
);

export const DESTINATION_FORMS_TEXT = formTexts({ anyOf: DESTINATION_FORMS }).join(', ');

const Destination = Type.Union([Words(['any'], { description: 'Every address.' }), ...DESTINATION_FORMS], {
  title: 'Destination',
  description: 'The other end of the traffic: `any`, or an object with exactly one of the keys.',
});

const PortRange = Named(
  'PortRange',
  {
    start: Int32({ maximum: 65_535, description: 'The first port of the range.' }),
    end: Int32({ maximum: 65_535, description: 'The last port of the range.' }),
  },
  'A range of ports.',
);

const Rule = Named(
  'Rule',
  {
    direction: Direction,
    destination: Destination,
    action: Action,
    ports: Type.Optional(
      Type.Array(PortRange, { description: 'The ports of the receiving side. Empty: every port.' }),
    ),
    protocols: Type.Optional(Type.Array(Protocol, { description: 'The protocols. Empty: every protocol.' })),
  },
  'A rule of a network policy.',
);
export type Rule = Static<typeof Rule>;
export type Action = Rule['action'];
/** A rule can have `any`, which is both. */
export type Direction = Exclude<Rule['direction'], 'any'>;

export const NetworkPolicy = Named(
  'NetworkPolicy',
  {
    default_egress: Type.Optional(
      Field(Action, 'The action for outgoing traffic that no rule matches. Default: `deny`.'),
    ),
    default_ingress: Type.Optional(
      Field(Action, 'The action for incoming traffic that no rule matches. Default: `deny`.'),
    ),
    rules: Type.Optional(
      Type.Array(Rule, {
        description: 'The rules in their order. In each direction the first match decides.',
      }),
    ),
  },
  'The traffic that a sandbox may have.',
);
export type NetworkPolicy = Static<typeof NetworkPolicy>;
