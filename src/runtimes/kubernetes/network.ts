import type { Capability } from '../runtime.js';

export const NETWORK_CHOICES = ['probe', 'trusted'] as const;
export type NetworkChoice = (typeof NETWORK_CHOICES)[number];

/** The part of the cluster's network that sandboxes get. */
export function capabilitiesOfNetwork(choice: NetworkChoice): {
  capabilities: Capability[];
  description: string;
} {
  if (choice === 'trusted') {
    return { capabilities: ['network'], description: "the cluster's, TRUSTED by --kubernetes-network" };
  }
  return { capabilities: [], description: 'NONE: nothing shows that the cluster enforces network policies' };
}
