import type { BigIntStats } from 'node:fs';
import { RunClaims } from '../run-claims.js';

/** A file that is a disk image of a virtual machine. */
export interface ImageUse {
  /** Its file system and its number there, as paths and hard links may change. */
  file: string;
  isReadonly: boolean;
}

/**
 * The disk images of the virtual machines that run. A monitor opens a header after the service has checked it, and
 * locks the file only then. Meanwhile no other sandbox may write to the file.
 */
export class ImageUses {
  readonly claims = new RunClaims<readonly ImageUse[]>();

  /** Claims the file, unless it is in use and one of both uses writes. Returns the sandbox that uses it. */
  reserve(sandboxId: string, use: ImageUse): string | undefined {
    for (const [holder, uses] of this.claims.entries())
      if (uses.some(({ file, isReadonly }) => file === use.file && !(isReadonly && use.isReadonly)))
        return holder;
    this.claims.claim(sandboxId, [...this.of(sandboxId), use]);
    return undefined;
  }

  of(sandboxId: string): readonly ImageUse[] {
    return this.claims.entries().find(([holder]) => holder === sandboxId)?.[1] ?? [];
  }
}

export function fileOf({ dev, ino }: Pick<BigIntStats, 'dev' | 'ino'>): string {
  return `${dev}:${ino}`;
}
