import type { NetworkPolicy } from './schema.js';

/** The default policy: outgoing traffic to the public internet and the resolvers, all incoming traffic. */
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
