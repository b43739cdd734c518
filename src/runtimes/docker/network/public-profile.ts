import type { NetworkPolicy } from '../../../sandboxes/spec/network-schema.js';

/** The policy of a sandbox that has none: the public internet and the resolvers, nothing else; open from outside. */
export const PUBLIC_PROFILE: NetworkPolicy = {
  default_egress: 'deny',
  default_ingress: 'allow',
  rules: [
    {
      direction: 'egress',
      destination: { group: 'host' },
      protocols: ['tcp', 'udp'],
      ports: [{ start: 53, end: 53 }],
      action: 'allow',
    },
    { direction: 'egress', destination: { group: 'public' }, action: 'allow' },
  ],
};
