import type Docker from 'dockerode';
import { ALREADY_REMOVED, ignoreStatus } from '../errors.js';
import { listPulled } from './engine-image.js';

const REMOVAL_MS = 60_000;

interface Unused {
  names: string[];
  orgId: string;
  bytes: number;
  usedAt: number;
}

/**
 * Removes pulled images that no container has: of the organization with the most bytes of them, by least recent use.
 */
export class UnusedImages {
  /** Since this process began. */
  private readonly uses = new Map<string, { orgId: string; at: number }>();
  /** How many were removed since this process began. */
  removed = 0;
  private last: Promise<void> = Promise.resolve();

  constructor(private readonly docker: Docker) {}

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
        // The engine asks every container whether it runs with the image, and waits for one that hangs.
        await this.docker
          .getImage(name)
          .remove({ abortSignal: AbortSignal.timeout(REMOVAL_MS) })
          .catch(ignoreStatus(...ALREADY_REMOVED));
        this.uses.delete(name);
      }
      this.removed += 1;
    }
  }

  private async find(isNeeded: (name: string) => boolean): Promise<Unused[]> {
    const images = await listPulled(this.docker);
    const containers = await this.docker.listContainers({ all: true });
    const inUse = new Set(containers.map(({ ImageID }) => ImageID));
    const present = new Set(images.flatMap(({ names }) => names));
    for (const name of this.uses.keys()) if (!present.has(name)) this.uses.delete(name);
    return images
      .filter(({ id, names }) => !inUse.has(id) && !names.some(isNeeded))
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
