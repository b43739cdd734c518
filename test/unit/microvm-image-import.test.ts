import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { importImage, type Import } from '../../src/engines/microvm/images/import-image.js';
import { ImageStore } from '../../src/engines/microvm/images/image-store.js';
import { ExplainedError } from '../../src/lib/explained-error.js';
import { makeFolder } from '../support/erofs.js';
import { layoutFiles, savedFiles, writeArchive, writeFolder, type Files } from '../support/image-files.js';
import { layerOf } from '../support/private-registry.js';

const architecture = process.arch === 'arm64' ? 'arm64' : 'amd64';

function makeStore() {
  const folder = makeFolder();
  const store = new ImageStore(join(folder, 'images'));
  const load = async (file: string, more: Partial<Import> = {}) =>
    importImage(store, {
      file,
      name: undefined,
      architecture,
      limit: { bytes: 1_000_000, beyond: 'no_space' },
      signal: new AbortController().signal,
      ...more,
    });
  return { folder, store, load };
}

test('a layer that old engines wrote as a link is found', async () => {
  const { folder, load } = makeStore();
  const files: Files = savedFiles([await layerOf({ a: 'a' })]);
  files['0/real.tar'] = files['0/layer.tar']!;
  files['0/layer.tar'] = { link: '../0/real.tar' };
  const { reference } = await load(await writeArchive(join(folder, 'image.tar'), files));
  expect(reference).toBe('docker.io/team/app:1');
});

test('the OCI layout is imported from a directory and from an archive, with equal bytes', async () => {
  const { folder, store, load } = makeStore();
  const layers = [await layerOf({ a: 'a'.repeat(10_000) })];
  const packed = layers.map((layer) => gzipSync(layer));
  const directory = writeFolder(join(folder, 'layout'), layoutFiles(layers, packed));
  const first = await load(directory, { name: 'a' });
  await store.remove(first.image.digest);
  const archive = await writeArchive(join(folder, 'layout.tar'), layoutFiles(layers));
  expect(await load(archive, { name: 'a' })).toEqual(first);
});

test('the image of this platform is found in an index', async () => {
  const { folder, store, load } = makeStore();
  const files = layoutFiles([await layerOf({ a: 'a' })]);
  const index = JSON.parse((files['index.json'] as Buffer).toString());
  const [own] = index.manifests;
  const platforms = [
    { digest: `sha256:${'0'.repeat(64)}`, platform: { os: 'linux', architecture: 'riscv64' } },
    { ...own, platform: { os: 'linux', architecture } },
  ];
  files['index.json'] = Buffer.from(JSON.stringify({ ...index, manifests: platforms }));
  const { image } = await load(writeFolder(join(folder, 'layout'), files), { name: 'a' });
  expect(await store.find(image.digest)).toEqual(image);
  const other = load(join(folder, 'layout'), { name: 'a', architecture: 's390x' });
  await expect(other).rejects.toThrow('it does not exist for the platform of this machine');
});

test('an archive without an image is refused with the reason, and leaves nothing', async () => {
  const { folder, store, load } = makeStore();
  const layers = [await layerOf({ a: 'a' })];
  const archive = async (files: Files) => writeArchive(join(folder, 'image.tar'), files);
  const compressed = join(folder, 'image.tar.gz');
  writeFileSync(compressed, gzipSync(readFileSync(await archive(savedFiles(layers)))));
  const manifest = (text: string) => ({ ...savedFiles(layers), 'manifest.json': Buffer.from(text) });
  const { '0/layer.tar': _, ...withoutLayer } = savedFiles(layers);
  const otherLayer = { ...savedFiles(layers), '0/layer.tar': await layerOf({ a: 'other' }) };
  const tooLarge = [await layerOf({ a: 'x'.repeat(1_000_000) })];
  const climbing = {
    'manifest.json': Buffer.from('[{"Config":"../../../../../../etc/passwd","Layers":[]}]'),
  };
  const digest = `a@sha256:${'0'.repeat(64)}`;
  const cases: [file: () => Promise<string> | string, name: string | undefined, words: string][] = [
    [() => join(folder, 'none'), undefined, 'no such file or directory'],
    [() => '/dev/null', undefined, 'it is no file: write the archive to a file first'],
    [() => compressed, undefined, 'if it is compressed, uncompress it first'],
    [() => archive({}), undefined, 'it has neither manifest.json nor index.json'],
    [
      () => archive(manifest('[{"Config":"a","Layers":[]},{"Config":"b","Layers":[]}]')),
      undefined,
      'it has 2 images: save one image in an archive',
    ],
    [() => archive(manifest('[]')), undefined, 'it has 0 images'],
    [() => archive(manifest('[{"Config":"a","Layers":[]}]')), undefined, 'it has no file a'],
    [() => archive(withoutLayer), undefined, 'is not complete: it has no file 0/layer.tar'],
    [() => archive({ 'index.json': Buffer.from('{"manifests":[]}') }), 'a', 'its index.json is invalid'],
    [() => archive(savedFiles(layers, { names: null })), undefined, 'give it a name with --name'],
    [() => archive(savedFiles(layers)), 'A B', '"A B" is no name of an image'],
    [() => archive(savedFiles(layers)), digest, 'is no name of an image'],
    [
      () => archive(savedFiles(layers, { config: { Cmd: 'x' } })),
      undefined,
      'configuration of the image is invalid',
    ],
    [() => archive(otherLayer), undefined, 'the content does not have the digest that its manifest names'],
    [() => archive(savedFiles(tooLarge)), undefined, 'the disk of this machine is full up to its reserve'],
    [() => writeFolder(join(folder, 'climbing'), climbing), 'a', 'it is not complete: it has no file ../'],
  ];
  for (const [file, name, words] of cases) {
    const error = await load(await file(), { name }).catch((error: unknown) => error);
    expect(error, words).toBeInstanceOf(ExplainedError);
    expect((error as Error).message).toContain(words);
  }
  expect(existsSync(store.root) ? readdirSync(store.root) : []).toEqual([]);
});
