export interface KeptImage {
  names: string[];
  bytes: number;
  /** A sandbox has it. */
  isInUse: boolean;
}

export interface ImageShelf {
  list(): Promise<KeptImage[]>;
  remove(name: string): Promise<void>;
}

interface Unused {
  names: string[];
  orgId: string;
  bytes: number;
  usedAt: number;
}

/**
 * Removes pulled images that no sandbox has: of the organization with the most bytes of them, by least recent use.
 */
export class UnusedImages {
  /** Since this process began. */
  private readonly uses = new Map<string, { orgId: string; at: number }>();
  /** How many were removed since this process began. */
  removed = 0;
  private last: Promise<void> = Promise.resolve();

  constructor(private readonly shelf: ImageShelf) {}

  noteUse(name: string, orgId: string): void {
    this.uses.set(name, { orgId, at: performance.now() });
  }

  /** Until `isEnough`. One call at a time: what an earlier one removes is counted before the next begins. */
  async remove(isNeeded: (name: string) => boolean, isEnough: () => Promise<boolean>): Promise<void> {
    this.last = this.last.catch(() => undefined).then(async () => this.removeNow(isNeeded, isEnough));
    return this.last;
  }

  private async removeNow(
    isNeeded: (name: string) => boolean,
    isEnough: () => Promise<boolean>,
  ): Promise<void> {
    const unused = await this.find(isNeeded);
    while (unused.length > 0 && !(await isEnough())) {
      const next = nextOf(unused);
      unused.splice(unused.indexOf(next), 1);
      for (const name of next.names) {
        if (isNeeded(name)) continue;
        await this.shelf.remove(name);
        this.uses.delete(name);
      }
      this.removed += 1;
    }
  }

  private async find(isNeeded: (name: string) => boolean): Promise<Unused[]> {
    const images = await this.shelf.list();
    const present = new Set(images.flatMap(({ names }) => names));
    for (const name of this.uses.keys()) if (!present.has(name)) this.uses.delete(name);
    return images
      .filter(({ isInUse, names }) => !isInUse && !names.some(isNeeded))
      .map(({ names, bytes }) => {
        const uses = names.flatMap((name) => this.uses.get(name) ?? []);
        const last = uses.toSorted((a, b) => b.at - a.at)[0] ?? { orgId: '', at: -Infinity };
        return { names, bytes, orgId: last.orgId, usedAt: last.at };
      });
  }
}

function nextOf(unused: readonly Unused[]): Unused {
  const byOrg = new Map<string, number>();
  for (const { orgId, bytes } of unused) byOrg.set(orgId, (byOrg.get(orgId) ?? 0) + bytes);
  return unused.toSorted((a, b) => byOrg.get(b.orgId)! - byOrg.get(a.orgId)! || a.usedAt - b.usedAt)[0]!;
}
