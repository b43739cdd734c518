import { Type, type Static } from 'typebox';
import { Words } from '../../http/schema.js';

/** More belong in a policy, which is written by hand. */
const MOST_DOMAINS = 50;

const properties = {
  network: Type.Optional(
    Words(['none', 'public'], {
      description:
        'Default: `none`. `public`: the public internet, without private addresses. Ask for it only if the task needs it.',
    }),
  ),
  allow_domains: Type.Optional(
    Type.Array(Type.String({ minLength: 1 }), {
      minItems: 1,
      maxItems: MOST_DOMAINS,
      description:
        'In place of `network`: only these domains and their subdomains, such as `["pypi.org", "files.pythonhosted.org"]`.',
    }),
  ),
};
export const networkInput = properties;

type Input = Static<ReturnType<typeof Type.Object<typeof properties>>>;

/** The network of a specification. Without one of the fields the sandbox has none. */
export function networkOf({ network, allow_domains: domains }: Input): object {
  if (domains) {
    const rules = domains.map((domain) => ({
      direction: 'egress',
      destination: { domain_suffix: domain },
      action: 'allow',
    }));
    return { enabled: true, policy: { default_egress: 'deny', default_ingress: 'deny', rules } };
  }
  return { enabled: network === 'public' };
}
