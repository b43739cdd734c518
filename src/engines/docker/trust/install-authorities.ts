import type Docker from 'dockerode';
import { posix } from 'node:path';
import { StartRefusedError } from '../../../engine/runtime.js';
import { readFile, writeEntries, type Entry } from '../archive.js';
import type { ContainerdPlace } from '../containerd.js';
import { statusOf } from '../errors.js';
import type { GuestFile } from '../mounts/guest-files.js';
import { isBelow, lookAtDisk, placeOf, type Stat } from '../files/disk-stat.js';
import {
  addedAuthorities,
  javaStoreOf,
  LARGEST_BUNDLE,
  OWN_FILE,
  ownBundle,
  type Authorities,
} from '../../../machine-network/trust/authorities.js';
import { subjectHash, withAuthorities } from '../../../machine-network/trust/certificates.js';
import { STORES } from '../../../machine-network/trust/stores.js';
import { TRUST_FILES } from '../../../machine-network/trust/trust-files.js';

/** The archive interface of the engine takes names as text. */
const PLAIN_NAME = /^[\x21-\x7e]+$/;

/**
 * Adds authorities to the store of the image, whichever it has, and makes the files of the service. The sandbox must
 * not run.
 *
 * The disk belongs to a guest, who may have put anything at these paths. The engine writes inside the root of the
 * container, so a link leads nowhere else. A store that cannot be changed stays as it is: the guest harms itself alone,
 * and the files of the service have the authorities in any case.
 */
export async function installAuthorities(
  container: Docker.Container,
  containerd: ContainerdPlace | undefined,
  authorities: Authorities,
): Promise<Map<string, GuestFile>> {
  const { own } = authorities;
  const added = addedAuthorities(authorities);
  const inspected = await container.inspect();
  const places = await lookAtDisk(container, inspected, containerd, findPlaces);
  let bundle: { link: string; text: string } | undefined;
  const entries: Entry[] = [];
  for (const place of places.bundles) {
    const before = await readSmall(container, place);
    if (!before) continue;
    const text = withAuthorities(before.content.toString('latin1'), added);
    const content = Buffer.from(text, 'latin1');
    if (!content.equals(before.content)) entries.push({ ...before, content });
    bundle ??= { link: place, text };
  }
  const texts = added.map(({ text }) => text);
  const anchor = Buffer.from(texts.join(''));
  for (const place of places.anchors) {
    const before = await readSmall(container, place);
    if (before?.content.equals(anchor) !== true)
      entries.push({ name: place, type: 'file', mode: 0o644, content: anchor });
  }
  if (places.hashed !== undefined && own !== undefined && entries.length > 0) {
    const file = posix.join(places.hashed, OWN_FILE);
    entries.push({ name: file, type: 'file', mode: 0o644, content: Buffer.from(own) });
    entries.push({ name: `${places.hashed}/${subjectHash(own)}.0`, type: 'symlink', target: OWN_FILE });
  }
  if (entries.length > 0 && !(await tryTo(() => writeEntries(container, entries)))) bundle = undefined;
  const text = bundle?.text ?? ownBundle(added);
  return new Map<string, GuestFile>([
    [TRUST_FILES.added, anchor],
    [TRUST_FILES.all, bundle ? { link: bundle.link } : Buffer.from(text, 'latin1')],
    [TRUST_FILES.java, javaStoreOf(text)],
  ]);
}

interface Places {
  bundles: string[];
  anchors: string[];
  hashed: string | undefined;
}

/** The paths behind every link. Volumes are left out: they outlive the sandbox, and others may write them meanwhile. */
async function findPlaces(stat: Stat, targets: readonly string[]): Promise<Places> {
  const points = await Promise.all(targets.map((target) => tryPlace(target, stat)));
  const find = async (path: string, type: 'file' | 'directory') => {
    const place = await tryPlace(path, stat);
    if (place === undefined || !PLAIN_NAME.test(place)) return [];
    if (points.some((point) => point === undefined || isBelow(place, point))) return [];
    const found = await stat(place);
    return found?.type === type && (type === 'directory' || found.size <= LARGEST_BUNDLE) ? [place] : [];
  };
  const bundles: string[] = [];
  for (const path of STORES.bundles) bundles.push(...(await find(path, 'file')));
  const anchors: string[] = [];
  for (const { directory, file } of STORES.anchors) {
    for (const place of await find(directory, 'directory')) anchors.push(posix.join(place, file));
  }
  const [hashed] = await find(STORES.hashed, 'directory');
  return { bundles: [...new Set(bundles)], anchors, hashed };
}

async function tryPlace(path: string, stat: Stat): Promise<string | undefined> {
  try {
    return await placeOf(path, stat);
  } catch (error) {
    // It leads through too many links.
    if (error instanceof StartRefusedError || statusOf(error) !== undefined) return undefined;
    throw error;
  }
}

async function readSmall(
  container: Docker.Container,
  place: string,
): Promise<Extract<Entry, { type: 'file' }> | undefined> {
  let found: Extract<Entry, { type: 'file' }> | undefined;
  await tryTo(async () => (found = await readFile(container, place, LARGEST_BUNDLE)));
  return found;
}

/** False: the engine refuses it. */
async function tryTo(action: () => Promise<unknown>): Promise<boolean> {
  try {
    await action();
    return true;
  } catch (error) {
    if (statusOf(error) === undefined) throw error;
    return false;
  }
}
