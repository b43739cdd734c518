import type Docker from 'dockerode';
import { createHash } from 'node:crypto';
import { posix } from 'node:path';
import { rootCertificates } from 'node:tls';
import { StartRefusedError } from '../../../engine/runtime.js';
import { readFile, writeEntries, type Entry } from '../archive.js';
import type { ContainerdPlace } from '../containerd.js';
import { statusOf } from '../errors.js';
import type { GuestFile } from '../mounts/guest-files.js';
import { isBelow, lookAtDisk, placeOf, type Stat } from '../files/disk-stat.js';
import { certificatesIn, distinct, readable, subjectHash, withAuthorities } from './certificates.js';
import { javaStore } from './java-store.js';
import { STORES } from './stores.js';
import { TRUST_FILES } from './trust-files.js';

/** That of a distribution has 230 KiB. A larger one stays as it is, and the service reads no more of it. */
const LARGEST_BYTES = 2 * 1024 * 1024;
/** A distribution has 150. */
const MOST_CERTIFICATES = 1_000;
/** The archive interface of the engine takes names as text. */
const PLAIN_NAME = /^[\x21-\x7e]+$/;

/** The authorities to add, as texts of PEM. */
export interface Authorities {
  /** That of the interception. */
  own: string | undefined;
  /** Those of the machine. */
  machine: readonly string[];
}

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
  { own, machine }: Authorities,
): Promise<Map<string, GuestFile>> {
  const added = distinct([...(own === undefined ? [] : [own]), ...machine]).slice(0, MOST_CERTIFICATES);
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
    const file = posix.join(places.hashed, 'sandkeep.pem');
    entries.push({ name: file, type: 'file', mode: 0o644, content: Buffer.from(own) });
    entries.push({ name: `${places.hashed}/${subjectHash(own)}.0`, type: 'symlink', target: 'sandkeep.pem' });
  }
  if (entries.length > 0 && !(await tryTo(() => writeEntries(container, entries)))) bundle = undefined;
  const text = bundle?.text ?? [...rootCertificates.map((root) => `${root.trim()}\n`), ...texts].join('');
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
    return found?.type === type && (type === 'directory' || found.size <= LARGEST_BYTES) ? [place] : [];
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
  await tryTo(async () => (found = await readFile(container, place, LARGEST_BYTES)));
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

/** To check the certificates of a distribution takes 10 ms, and most sandboxes have the same ones. */
const MADE_STORES = new Map<string, Buffer>();
const MOST_STORES = 16;

function javaStoreOf(bundle: string): Buffer {
  const key = createHash('sha256').update(bundle).digest('base64');
  const made =
    MADE_STORES.get(key) ?? javaStore(readable(certificatesIn(bundle).slice(0, MOST_CERTIFICATES)));
  MADE_STORES.delete(key);
  MADE_STORES.set(key, made);
  for (const oldest of MADE_STORES.keys()) {
    if (MADE_STORES.size <= MOST_STORES) break;
    MADE_STORES.delete(oldest);
  }
  return made;
}
