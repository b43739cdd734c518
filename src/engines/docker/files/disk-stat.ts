import type Docker from 'dockerode';
import { Buffer } from 'node:buffer';
import { posix } from 'node:path';
import { SlotQueue } from '../../../fairness/slot-queue.js';
import { textOfName } from '../../../lib/byte-names.js';
import { statPath, type PathStat } from '../archive.js';
import { ORG_LABEL } from '../container.js';
import type { ContainerdPlace } from '../containerd.js';
import { SERVER_ERROR } from '../errors.js';
import { openDiskView } from './disk-view.js';

export type Stat = (path: string) => Promise<PathStat | undefined>;

/** A path of a mount has at most so many parts and links. */
const MAX_STEPS = 64;

/** Each look may take a thousand descriptors. */
const LOOKS = new SlotQueue({ total: 2, each: 1 });

/** Calls `look` with the disk below the mounts where the service sees it, and else with the stat of the engine. */
export async function lookAtDisk<T>(
  container: Docker.Container,
  inspected: Docker.ContainerInspectInfo,
  containerd: ContainerdPlace | undefined,
  look: (stat: Stat, targets: readonly string[]) => Promise<T>,
): Promise<T> {
  const targets = targetsOf(inspected);
  return LOOKS.run(inspected.Config.Labels[ORG_LABEL] ?? '', async () => {
    const view = await openDiskView(inspected, containerd);
    if (!view) return await look(statOf(container), targets);
    const texts = targets.map((target) => textOfName(Buffer.from(target)));
    try {
      return await look((path) => view.stat(path), texts);
    } finally {
      await view.close();
    }
  });
}

export function targetsOf(inspected: Docker.ContainerInspectInfo): string[] {
  return inspected.Mounts.map(({ Destination }) => Destination);
}

export function statOf(container: Docker.Container): Stat {
  // Mounts share most of their parents.
  const known = new Map<string, Promise<PathStat | undefined>>();
  return async (path) => {
    const asked = known.get(path) ?? statPath(container, path, { fails: [SERVER_ERROR] });
    known.set(path, asked);
    return asked;
  };
}

/** The path behind every link. Undefined: there are too many, or a name is not UTF-8. */
export async function placeOf(target: string, stat: Stat): Promise<string | undefined> {
  let done = '/';
  const parts = target.split('/').filter((part) => part !== '');
  for (let steps = 0; parts.length > 0; steps += 1) {
    if (steps === MAX_STEPS) return undefined;
    const next = posix.join(done, parts.shift()!);
    const found = await stat(next);
    const place = found?.type === 'symlink' ? behind(found) : next;
    if (place === undefined) return undefined;
    done = place;
  }
  return done;
}

/** The engine tells names in JSON, so that bytes which are no UTF-8 are lost. */
export function behind({ target }: PathStat): string | undefined {
  return target.includes('\ufffd') ? undefined : posix.join('/', target);
}

export function isBelow(place: string, point: string): boolean {
  return place === point || place.startsWith(point === '/' ? '/' : `${point}/`);
}
