export const NAMESPACE_CHOICES = ['shared', 'each-organization'] as const;
export type NamespaceChoice = (typeof NAMESPACE_CHOICES)[number];
