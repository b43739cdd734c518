export const ACCESS_CHOICES = ['ReadWriteOnce', 'ReadWriteMany'] as const;
export type AccessChoice = (typeof ACCESS_CHOICES)[number];

/** Whether the storage class holds a volume to its size. Kubernetes does not say. */
export const SIZE_CHOICES = ['advisory', 'enforced'] as const;
export type SizeChoice = (typeof SIZE_CHOICES)[number];
