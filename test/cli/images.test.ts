import { execFileSync } from 'node:child_process';
import { existsSync, linkSync, mkdirSync, readFileSync, rmSync, statSync, utimesSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { PROGRAM, run, runJson, start } from '../support/cli.js';
import { makeFolder } from '../support/erofs.js';
import { layoutFiles, savedFiles, writeArchive, writeFolder } from '../support/image-files.js';
import { until } from '../support/polling.js';
import { digestOf, layerOf } from '../support/private-registry.js';

async function images(...layers: Record<string, string>[]) {
  const folder = makeFolder();
  const data = ['--data-dir', join(folder, 'data')];
  return {
    folder,
    root: join(folder, 'data/microvm/images'),
    layers: await Promise.all(layers.map((layer) => layerOf(layer))),
    import: async (file: string, ...more: string[]) => run(['images', 'import', file, ...data, ...more]),
    json: async (...args: string[]) => runJson(['images', ...args, ...data]),
    text: async (...args: string[]) => run(['images', ...args, ...data]),
    begin: (...args: string[]) => start([...PROGRAM, 'images', 'import', ...args, ...data]),
  };
}

test('an image of "docker save" is imported, listed and removed', async () => {
  const { folder, root, layers, json, text } = await images({ a: 'a' }, { b: 'b' });
  const config = {
    Cmd: ['/bin/a'],
    Env: ['A=b'],
    ExposedPorts: { '80/tcp': {} },
    User: 'me',
    WorkingDir: '/w',
  };
  const file = await writeArchive(join(folder, 'image.tar'), savedFiles(layers, { config }));
  const imported = await json('import', file);
  expect(imported).toMatchObject({ name: 'docker.io/team/app:1', digest: expect.stringMatching(/^sha256:/) });
  const directory = join(root, imported.digest.slice(7));
  const base = readFileSync(join(directory, 'base.erofs'));
  expect(imported).toMatchObject({ bytes: base.length, sha256: digestOf(base).slice(7) });
  expect(JSON.parse(readFileSync(join(directory, 'image.json'), 'utf8'))).toMatchObject({
    digest: imported.digest,
    base: { bytes: base.length, sha256: imported.sha256 },
    config: {
      cmd: ['/bin/a'],
      entrypoint: [],
      env: ['A=b'],
      exposedPorts: ['80/tcp'],
      user: 'me',
      workdir: '/w',
    },
  });

  const again = await json('import', file, '--name', 'localhost:5000/other');
  expect(again).toEqual({ ...imported, name: 'localhost:5000/other:latest' });
  linkSync(join(directory, 'base.erofs'), join(folder, 'of-a-sandbox'));
  const { name, digest, bytes } = imported;
  const image = { digest, bytes, uses: 1 };
  expect(await json('list')).toEqual({
    images: [
      { name, ...image },
      { name: 'localhost:5000/other:latest', ...image },
    ],
  });
  expect((await text('list')).out).toMatch(
    /^NAME +IMAGE +MIB +USES\nteam\/app:1 +sha256:\w+ +1 +1\nlocalhost:5000/,
  );

  expect((await text('remove', 'team/app:1')).out).toBe(
    'team/app:1 is removed; its image has another name, and stays\n',
  );
  expect(existsSync(directory)).toBe(true);
  expect(await json('remove', 'localhost:5000/other')).toMatchObject({ digest, removed: true });
  expect(existsSync(directory)).toBe(false);
  expect(statSync(join(folder, 'of-a-sandbox')).size).toBe(bytes);
  expect((await text('list')).out).toBe('no images\n');
  expect((await text('remove', 'team/app:1')).err).toBe(
    'sandkeep: there is no image team/app:1: "sandkeep images list" has the names\n',
  );
});

test('an archive without an image is refused with the reason', async () => {
  const { folder, layers, ...cli } = await images({ '../../outside': '' });
  const { code, err } = await cli.import(await writeArchive(join(folder, 'image.tar'), savedFiles(layers)));
  expect({ code, err }).toEqual({
    code: 1,
    err: `sandkeep: cannot import ${folder}/image.tar: a path in a layer has ".."\n`,
  });
});

test('an import that is killed leaves a draft, which is no image and goes later', async () => {
  const { folder, root, layers, json, begin } = await images({ a: 'a' });
  const hanging = writeFolder(join(folder, 'hanging'), layoutFiles(layers));
  const layer = join(hanging, `blobs/${digestOf(layers[0]!).replace(':', '/')}`);
  rmSync(layer);
  execFileSync('mkfifo', [layer]);
  const { child, ended } = begin(hanging, '--name', 'a');
  const drafts = async () =>
    readdir(root).then(
      (names) => names.filter((name) => name.startsWith('.new-')),
      () => [],
    );
  const [draft] = await until(drafts, (names) => names.length > 0);
  child.kill('SIGKILL');
  await ended;
  expect(await json('list')).toEqual({ images: [] });

  // A younger draft could be that of a process that has just begun.
  utimesSync(join(root, draft!), 0, 0);
  mkdirSync(join(root, '.removed-1'));
  await json('import', await writeArchive(join(folder, 'image.tar'), savedFiles(layers)));
  expect((await readdir(root)).filter((name) => name.startsWith('.'))).toEqual([]);
});
