import type { BigIntStats } from 'node:fs';
import { RunClaims } from '../run-claims.js';

/** A file that is a disk image of a virtual machine. */
export interface ImageUse {
  /** Its file system and its number there, as paths and hard links may change. */
  file: string;
  isReadonly: boolean;
  /** The directories of the volume that it is in, each by its file system and its number. */
  folders?: readonly string[];
}

/**
 * The disk images of the virtual machines that run. A monitor opens a header after the service has checked it, and
 * locks the file only then. Meanwhile no other sandbox may write to the file.
 */
export class ImageUses {
  readonly claims = new RunClaims<readonly ImageUse[]>();

  /**
   * Begins the uses of one start. `continues`: the start continues a pause, whose files stay claimed while the start
   * claims them again. Otherwise the files of an earlier run are free.
   */
  begin(sandboxId: string, { continues }: { continues: boolean }): StartUses {
    const { claims } = this;
    const before = continues ? this.of(sandboxId) : [];
    const own: ImageUse[] = [];
    claims.claim(sandboxId, before);
    return {
      own,
      reserve: (use) => {
        if (own.some((other) => excludes(other, use))) return sandboxId;
        for (const [holder, uses] of claims.entries())
          if (holder !== sandboxId && uses.some((other) => excludes(other, use))) return holder;
        own.push(use);
        claims.claim(sandboxId, [...before, ...own]);
        return undefined;
      },
    };
  }

  /** A sandbox that has a disk image in the directory or below it, or the file as a disk image. */
  userIn(folder: string): string | undefined {
    return this.claims
      .entries()
      .find(([, uses]) =>
        uses.some(({ file, folders = [] }) => file === folder || folders.includes(folder)),
      )?.[0];
  }

  private of(sandboxId: string): readonly ImageUse[] {
    return this.claims.entries().find(([holder]) => holder === sandboxId)?.[1] ?? [];
  }
}

/** The disk images of one start. */
export interface StartUses {
  readonly own: readonly ImageUse[];
  /** Claims the file, unless it is in use and one of both uses writes. Returns the sandbox that uses it. */
  reserve(use: ImageUse): string | undefined;
}

function excludes(one: ImageUse, other: ImageUse): boolean {
  return one.file === other.file && !(one.isReadonly && other.isReadonly);
}

export function fileOf({ dev, ino }: Pick<BigIntStats, 'dev' | 'ino'>): string {
  return `${dev}:${ino}`;
}
