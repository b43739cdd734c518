/**
 * Remembers the images to which organizations have proved access: to an image index or a manifest, by its digest, under
 * a reference in its normal form.
 */
export interface ImageAccess {
  find(orgId: string, reference: string): Promise<{ digest: string; ageMs: number } | undefined>;
  record(orgId: string, reference: string, digest: string): Promise<void>;
}
