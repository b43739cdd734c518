import { CidrSet } from '../lib/cidr.js';
import type { Surroundings } from '../network-policy/evaluate.js';
import { machineAddresses } from './machine-addresses.js';
import type { LinkedNamespace } from './namespace.js';
import { systemResolvers } from './resolvers.js';

interface BridgeAddresses {
  subnets: string[];
  /** The addresses of the machine on them. */
  gateways: string[];
}

/** The addresses around the sandboxes of this machine. They change while sandboxes run. */
export class MachineSurroundings {
  constructor(
    private readonly options: {
      /** Default: those of the machine. */
      resolvers: readonly string[] | undefined;
      openableGroups: Surroundings['openableGroups'];
    },
    private readonly bridges: { readonly surroundings: BridgeAddresses } | undefined,
  ) {}

  resolvers(): readonly string[] {
    return this.options.resolvers ?? systemResolvers().addresses;
  }

  /** The machine has an address on each bridge, and sandboxes of all bridges are neighbours. */
  addresses(): { hosts: string[]; neighbours: string[] } {
    const { subnets, gateways } = this.bridges?.surroundings ?? { subnets: [], gateways: [] };
    return { hosts: [...machineAddresses(), ...gateways], neighbours: subnets };
  }

  /** For comparison. */
  text(): string {
    const { hosts, neighbours } = this.addresses();
    return [...new Set(hosts)].toSorted().concat(neighbours.toSorted()).join(' ');
  }

  of({ gateways, links }: Pick<LinkedNamespace, 'gateways' | 'links'>): Surroundings {
    const { hosts, neighbours } = this.addresses();
    const known = new CidrSet(neighbours);
    return {
      hosts: [...hosts, ...gateways],
      resolvers: this.resolvers(),
      neighbours: [...neighbours, ...links.filter((link) => !known.includes(link.split('/')[0]!))],
      openableGroups: this.options.openableGroups,
    };
  }
}
