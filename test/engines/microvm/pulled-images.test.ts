import {
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { UNCHECKED_DISKS } from '../../../src/disk/disk-reserve.js';
import type { PullOptions } from '../../../src/engine/definition.js';
import type { Run } from '../../../src/engine/runtime.js';
import { BASE_FILE } from '../../../src/engines/microvm/images/build-base.js';
import { ImageNames } from '../../../src/engines/microvm/images/image-names.js';
import { ImageStore } from '../../../src/engines/microvm/images/image-store.js';
import { VmImages } from '../../../src/engines/microvm/images/vm-images.js';
import { registryReach } from '../../../src/settings.js';
import { parseImageReference } from '../../../src/spec/image-reference.js';
import { makeFolder } from '../../support/erofs.js';
import { configOf, digestOf, layerOf, remoteImage } from '../../support/private-registry.js';
import {
  architecture,
  credentials,
  LOCAL,
  recordedAccess,
  refusal,
  serve,
} from '../../support/pulled-images.js';

const MIB = 1_024 * 1_024;

let layers = 0;
const newLayer = async (content = '') => layerOf({ [`file-${(layers += 1)}`]: content });
const imageOf = (...parts: Buffer[]) =>
  remoteImage(
    configOf(parts),
    parts.map((part) => gzipSync(part)),
  );

function makeImages(options: Partial<PullOptions> = {}) {
  const folder = makeFolder();
  const sandboxes = join(folder, 'sandboxes');
  const access = recordedAccess();
  const pulls = { reach: registryReach(LOCAL), access, maxMib: 64, disk: UNCHECKED_DISKS, ...options };
  const store = new ImageStore(join(folder, 'images'));
  const orgOf = async (sandboxId: string) => Promise.resolve(sandboxId.split('-')[0]);
  const ofSnapshots = new Map<string, string>();
  const snapshotBases = async (orgId: string) => Promise.resolve([ofSnapshots.get(orgId) ?? []].flat());
  const images = new VmImages({ store, sandboxes, orgOf, snapshotBases, architecture, pulls });
  const runOf = (
    image: string,
    { orgId = 'a', pullPolicy = 'if_missing', registry = null as object | null } = {},
  ) =>
    ({
      orgId,
      runId: `${orgId} ${image}`,
      spec: { image, pullPolicy },
      secrets: { registry, values: {} },
    }) as unknown as Run;
  const { signal } = new AbortController();
  return {
    ofSnapshots,
    access,
    store,
    images,
    runOf,
    atHand: async (image: string, orgId = 'a', pullPolicy: 'if_missing' | 'always' = 'if_missing') =>
      images.atHand({ orgId, image, pullPolicy }),
    ensure: async (image: string, more: Parameters<typeof runOf>[1] = {}, over = signal) =>
      images.ensure(runOf(image, more), over),
    /** As the engine does for a sandbox of the organization. */
    hold: (directory: string, sandboxId: string) => {
      mkdirSync(join(sandboxes, sandboxId), { recursive: true });
      linkSync(join(directory, BASE_FILE), join(sandboxes, sandboxId, BASE_FILE));
    },
    destroy: (sandboxId: string) => rmSync(join(sandboxes, sandboxId), { recursive: true }),
    files: () => readdirSync(store.root).filter((name) => !['names', 'pulled'].includes(name)),
  };
}

test('images are pulled once for several runs at once, and shared by all that proved their access', async () => {
  const parts = [await newLayer('first'), await newLayer('second')];
  const registry = await serve(imageOf(...parts, parts[0]!));
  const { ensure, files } = makeImages();
  const runs = ['a', 'a', 'b', 'c'].map((orgId) => ensure(`${registry.host}/team/app:1`, { orgId }));
  const found = await Promise.all(runs);
  expect(new Set(found.map(({ stored }) => stored.directory)).size).toBe(1);
  expect(found[0]).toMatchObject({
    digest: registry.image.digest,
    stored: { digest: registry.image.config },
  });
  expect(registry.requests.filter((request) => request.includes('/blobs/'))).toHaveLength(3);
  expect(files()).toEqual([registry.image.config.slice('sha256:'.length)]);
  const { directory, base } = found[0]!.stored;
  expect(digestOf(readFileSync(join(directory, BASE_FILE)))).toBe(`sha256:${base.sha256}`);
  expect(readdirSync(directory).toSorted()).toEqual([BASE_FILE, 'image.json']);

  const other = await ensure(`${registry.host}/other/name:1`);
  expect(other.stored).toEqual(found[0]!.stored);
  expect(registry.requests.filter((request) => request.includes('/other/name/blobs/'))).toHaveLength(4);
});

test('images are at hand for an organization that would start without a question to their registry', async () => {
  const registry = await serve(imageOf(await newLayer()));
  const { ensure, atHand, access } = makeImages();
  const reference = `${registry.host}/team/app:1`;
  expect(await atHand(reference)).toBeUndefined();
  const { digest, stored } = await ensure(reference);
  registry.requests.length = 0;
  expect(await atHand(reference)).toEqual({ digest, config: stored.config });
  expect(await atHand(reference, 'b')).toBeUndefined();
  expect(await atHand(reference, 'a', 'always')).toBeUndefined();
  access.ageMs = 25 * 3_600_000;
  expect(await atHand(reference)).toBeUndefined();
  expect(registry.requests).toEqual([]);
});

test('images are not given to a registry that only names the digests of others', async () => {
  const secret = await newLayer('secret');
  const theirs = imageOf(secret);
  const honest = await serve(theirs, { credentials });
  const { ensure, files } = makeImages();
  await ensure(`${honest.host}/team/app:1`, { registry: credentials });
  expect(await refusal(ensure(`${honest.host}/team/app:1`, { orgId: 'b' }))).toMatch(/requires credentials/);

  const thief = await serve({ ...theirs, blobs: new Map() });
  const steal = async () => refusal(ensure(`${thief.host}/team/app:1`, { orgId: 'b' }));
  expect(await steal()).toBe('the registry has no such image');
  // The configuration is that of the others, with other bytes under the digests of the thief.
  thief.image = remoteImage(configOf([secret]), [gzipSync(await newLayer())]);
  expect(await steal()).toBe('the content does not have the digest that its manifest names');
  thief.image = {
    ...theirs,
    blobs: new Map([...theirs.blobs].map(([digest]) => [digest, Buffer.from('x')])),
  };
  expect(await steal()).toMatch(/digest that its manifest names/);
  expect(files()).toHaveLength(1);
});

test('a layer of zstd is taken, and a failed pull leaves nothing', async () => {
  const layer = await newLayer('content');
  const frame = Buffer.concat([Buffer.from('28b52ffd0050', 'hex'), Buffer.alloc(3), layer]);
  frame.writeUIntLE((layer.length << 3) | 1, 6, 3);
  const registry = await serve(remoteImage(configOf([layer]), [frame]));
  const { ensure, files } = makeImages({ maxMib: 1 });
  await ensure(`${registry.host}/team/zstd:1`);
  expect(files()).toHaveLength(1);

  const cases: [layer: Buffer, words: RegExp][] = [
    [Buffer.from(layer.toString('latin1').replace('file-', '../f-'), 'latin1'), /gives no valid answer/],
    [await newLayer('x'.repeat(2 * MIB)), /larger than the operator allows with --image-max-mib/],
    [await layerOf({}, [{ name: 'd', type: 'link', linkname: 'none' }]), /gives no valid answer/],
  ];
  for (const [bad, words] of cases) {
    registry.image = imageOf(bad);
    expect(await refusal(ensure(`${registry.host}/team/bad:1`, { pullPolicy: 'always' }))).toMatch(words);
  }
  expect(files()).toHaveLength(1);
});

test('a pull that its caller ends leaves nothing', async () => {
  const over = new AbortController();
  const registry = await serve(imageOf(await newLayer('content')), {
    intercept: ({ url }) => void (url!.includes('/blobs/') && over.abort(new Error('enough'))),
  });
  const { ensure, store } = makeImages();
  await expect(ensure(`${registry.host}/team/app:1`, {}, over.signal)).rejects.toThrow('enough');
  expect(existsSync(store.root) ? readdirSync(store.root) : []).toEqual([]);
});

test('images of the operator need no registry, and every organization may use them', async () => {
  const registry = await serve(imageOf(await newLayer('theirs')));
  const { ensure, store, images, runOf } = makeImages();
  const { stored } = await ensure(`${registry.host}/team/app:1`);
  await new ImageNames(store.root).set(parseImageReference('local/app')!, stored.digest);
  const found = await ensure('local/app', { orgId: 'b', pullPolicy: 'never' });
  expect(found).toEqual({ digest: stored.digest, stored });
  const { signal } = new AbortController();
  expect(await images.latestDigest(runOf('local/app'), signal)).toBe(stored.digest);
  expect(await images.latestDigest(runOf(`${registry.host}/team/app:1`), signal)).toBe(registry.image.digest);
  expect(await refusal(ensure('local/other', { pullPolicy: 'never' }))).toMatch(/pull_policy is never/);

  writeFileSync(join(stored.directory, BASE_FILE), 'x', { flag: 'r+' });
  expect(await refusal(ensure('local/app'))).toMatch(/the operator must import it again/);
});

test('a damaged base is never used, and is made again', async () => {
  const registry = await serve(imageOf(await newLayer('content')));
  const { ensure } = makeImages();
  const image = `${registry.host}/team/app:1`;
  const first = await ensure(image);
  const file = join(first.stored.directory, BASE_FILE);
  const bytes = readFileSync(file);
  writeFileSync(file, 'x', { flag: 'r+' });
  expect(await ensure(image)).toEqual(first);
  expect(readFileSync(file).equals(bytes)).toBe(true);
  rmSync(join(first.stored.directory, 'image.json'));
  expect(await ensure(image)).toEqual(first);
});

test('the bytes of the bases that sandboxes and snapshots of an organization hold are bounded', async () => {
  const { ensure, hold, destroy, images, ofSnapshots, runOf } = makeImages({ maxMibOfOrg: 3 });
  const serveMib = async (mib: number) => {
    const registry = await serve(imageOf(await newLayer('x'.repeat(mib * MIB))));
    return `${registry.host}/team/app:1`;
  };
  const [one, two] = [await serveMib(1), await serveMib(2)];
  const first = await ensure(one);
  hold(first.stored.directory, 'a-1');
  images.release(runOf(one));
  expect(await refusal(ensure(two))).toMatch(/more bytes of images than --org-images-max-mib allows/);
  hold((await ensure(two, { orgId: 'b' })).stored.directory, 'b-1');
  expect(await refusal(ensure(two))).toMatch(/more bytes of images than --org-images-max-mib allows/);
  destroy('a-1');
  ofSnapshots.set('a', join(first.stored.directory, 'base.erofs'));
  expect(await refusal(ensure(two))).toMatch(/more bytes of images than --org-images-max-mib allows/);
  ofSnapshots.clear();
  await ensure(two);
});

test('unused images go when the disk is short, but none that a sandbox, a start or a name has', async () => {
  const full = Object.assign(Object.create(UNCHECKED_DISKS) as typeof UNCHECKED_DISKS, {
    hasRoom: async () => Promise.resolve(false),
  });
  const { ensure, hold, images, runOf, store, files } = makeImages({ disk: full });
  const names: string[] = [];
  const found: string[] = [];
  for (let count = 0; count < 4; count += 1) {
    const registry = await serve(imageOf(await newLayer()));
    names.push(`${registry.host}/team/app:1`);
    found.push((await ensure(names.at(-1)!)).stored.digest);
  }
  const [held, starting, named, unused] = found.map((digest) => digest.slice('sha256:'.length));
  hold(join(store.root, held!), 'a-1');
  await new ImageNames(store.root).set(parseImageReference('local/app')!, found[2]!);
  for (const index of [0, 2, 3]) images.release(runOf(names[index]!));
  await images.makeRoom();
  expect(new Set(files())).toEqual(new Set([held, starting, named]));
  await ensure(names[3]!);
  expect(statSync(join(store.root, unused!, BASE_FILE)).isFile()).toBe(true);
});
