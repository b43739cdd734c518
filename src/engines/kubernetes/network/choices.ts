export const NETWORK_CHOICES = ['probe', 'trusted'] as const;
export type NetworkChoice = (typeof NETWORK_CHOICES)[number];
