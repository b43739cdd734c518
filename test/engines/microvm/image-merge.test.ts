import { execFileSync } from 'node:child_process';
import {
  lstatSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
  type Stats,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import tar from 'tar-stream';
import { expect, test } from 'vitest';
import { build, describeErofs, describeTree, layersOf, makeFolder, mount } from '../../support/erofs.js';

const SEED = Number(process.env['SANDKEEP_TEST_IMAGE_SEED'] ?? Math.floor(Math.random() * 1e9));
const ROUNDS = 12;

type Entry = Parameters<tar.Pack['entry']>[0] & { content: Buffer; pax?: Record<string, string> };

describeErofs('the base of random layers', () => {
  test(`has the files that GNU tar unpacks, one layer over another, with seed ${SEED}`, async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      const random = generator(SEED + round);
      const oracle = join(makeFolder(), 'unpacked');
      mkdirSync(oracle, { mode: 0o755 });
      const layers: Buffer[] = [];
      for (let count = 1 + random(5); count > 0; count -= 1) {
        const entries = randomLayer(random, oracle);
        const layer = await pack(entries);
        layers.push(layer);
        unpack(layer, entries, oracle);
      }
      const base = await build(layersOf(layers));
      const seed = `SANDKEEP_TEST_IMAGE_SEED=${SEED + round}`;
      expect(await describeTree(mount(base.file)), seed).toEqual(await describeTree(oracle));
      const again = await build(layersOf(layers));
      expect(again.sha256, seed).toBe(base.sha256);
    }
  });
});

/** Numbers below a bound, by mulberry32. */
function generator(seed: number): (bound: number) => number {
  let state = seed;
  return (bound) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % bound;
  };
}

const NAMES = ['a', 'b', 'c', 'B', '!', 'Z'.repeat(100), 'n'.repeat(255), '-x', 'a b', '.hidden', 'zz'];
const SIZES = [0, 1, 100, 2_047, 2_048, 2_049, 4_095, 4_096, 4_097, 8_192, 10_000, 300_000];

/** A layer that GNU tar can unpack over the files so far: its paths lead through directories alone. */
function randomLayer(random: (bound: number) => number, oracle: string): Entry[] {
  const entries: Entry[] = [];
  const pick = <T>(values: readonly T[]): T => values[random(values.length)]!;
  const inLayer = new Map<string, 'directory' | 'file' | 'other'>();
  const hidden = new Set<string>();
  const directories = ['', ...directoriesIn(oracle)];
  const facts = () => ({
    uid: pick([0, 1_000, 4_000_000_000]),
    gid: pick([0, 5, 70_000]),
    mode: pick([0o644, 0o4755, 0o2755, 0o1777, 0o600, 0o000]),
    mtime: new Date(1_600_000_000_000 + random(1e9)),
    ...(random(4) === 0 ? { pax: { 'SCHILY.xattr.user.note': `v${random(100)}` } } : {}),
  });
  const add = (name: string, more: Partial<Entry> & { type: NonNullable<Entry['type']> }) => {
    const own = facts();
    // The kernel gives a new directory the set-group-ID bit of its parent, and GNU tar may leave it there.
    if (more.type === 'directory') own.mode &= ~0o2000;
    entries.push({ ...own, name, content: Buffer.alloc(0), ...more });
    inLayer.set(name, more.type === 'directory' || more.type === 'file' ? more.type : 'other');
  };
  /** Directories on the way are in the layer, as builders write them. */
  const addParents = (path: string) => {
    const parent = dirname(path);
    if (parent === '.' || inLayer.get(parent) === 'directory') return;
    addParents(parent);
    add(parent, { type: 'directory' });
  };
  const isFree = (path: string) => {
    for (let at = path; at !== '.'; at = dirname(at)) {
      const kind = inLayer.get(at);
      if (at === path ? kind !== undefined : kind !== undefined && kind !== 'directory') return false;
    }
    return true;
  };
  for (let left = 3 + random(25); left > 0; left -= 1) {
    const parent = pick(directories);
    const path = join(parent, pick(NAMES));
    if (path.length > 2_000 || !isFree(path)) continue;
    switch (random(9)) {
      case 0:
        // The whiteout of what an earlier layer has. Its directory may be new here too.
        if (
          basename(path).length < 250 &&
          existing(oracle, path) &&
          ![...inLayer.keys()].some((name) => name.startsWith(`${path}/`))
        ) {
          addParents(path);
          entries.push({ ...facts(), name: join(parent, `.wh.${basename(path)}`), content: Buffer.alloc(0) });
          hidden.add(path);
        }
        break;
      case 1:
        if (random(3) === 0 && parent !== '') {
          addParents(path);
          entries.push({ ...facts(), name: join(parent, '.wh..wh.opq'), content: Buffer.alloc(0) });
        }
        break;
      case 2:
        addParents(path);
        add(path, {
          type: 'symlink',
          linkname: pick(['a', '../b', '/etc/passwd', 'x'.repeat(3_000), 'no/where']),
        });
        break;
      case 3: {
        const target = pick([...inLayer].filter(([, kind]) => kind === 'file').map(([name]) => name));
        if (target === undefined) break;
        addParents(path);
        if (inLayer.get(path) === undefined) add(path, { type: 'link', linkname: target });
        break;
      }
      case 4:
        addParents(path);
        add(path, {
          type: pick(['character-device', 'block-device']),
          devmajor: random(4_000),
          devminor: random(300),
        });
        break;
      case 5:
        addParents(path);
        add(path, { type: 'fifo' });
        break;
      case 6:
        addParents(path);
        add(path, { type: 'directory' });
        directories.push(path);
        break;
      default: {
        addParents(path);
        const size = pick(SIZES);
        const content = Buffer.alloc(size, random(3) === 0 ? 0 : String(random(1e6)));
        add(path, { type: 'file', content });
      }
    }
  }
  return entries;
}

/** Undefined: its path does not lead through directories alone. */
function existing(oracle: string, path: string): Stats | undefined {
  const parent = dirname(path);
  if (parent !== '.' && existing(oracle, parent)?.isDirectory() !== true) return undefined;
  return lstatSync(join(oracle, path), { throwIfNoEntry: false });
}

function directoriesIn(folder: string, below = ''): string[] {
  return readdirSync(join(folder, below), { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .flatMap(({ name }) => [join(below, name), ...directoriesIn(folder, join(below, name))]);
}

async function pack(entries: readonly Entry[]): Promise<Buffer> {
  const archive = tar.pack();
  for (const { content, ...header } of entries) archive.entry(header, content);
  archive.finalize();
  const pieces: Buffer[] = [];
  for await (const piece of archive) pieces.push(piece as Buffer);
  return Buffer.concat(pieces);
}

/** Whiteouts hide what is there before the layer, whatever their place in it. */
function unpack(layer: Buffer, entries: readonly Entry[], folder: string): void {
  for (const { name, type } of entries) {
    const base = basename(name);
    const parent = dirname(name);
    // The layer has a directory instead of what is there.
    if (parent !== '.' && existing(folder, parent)?.isDirectory() !== true) continue;
    const remove = (child: string) => rmSync(join(folder, parent, child), { recursive: true, force: true });
    if (base === '.wh..wh.opq') readdirSync(join(folder, parent)).forEach(remove);
    else if (base.startsWith('.wh.')) remove(base.slice('.wh.'.length));
    else if (existing(folder, name)?.isDirectory() !== true) continue;
    // GNU tar replaces no directory by a file, and keeps the attributes of one that a layer names again.
    else if (type === 'directory') makeAnew(join(folder, name));
    else remove(base);
  }
  const file = join(makeFolder(), 'layer.tar');
  writeFileSync(file, layer);
  const flags = ['--xattrs', '--xattrs-include=*', '--numeric-owner', '-p'];
  execFileSync('tar', ['-x', '-f', file, '-C', folder, '--exclude=.wh.*', ...flags], { stdio: 'pipe' });
}

function makeAnew(directory: string): void {
  const made = `${directory}/.new-${Math.random()}`;
  mkdirSync(made);
  for (const child of readdirSync(directory)) {
    if (child !== basename(made)) renameSync(join(directory, child), join(made, child));
  }
  const aside = join(makeFolder(), 'aside');
  renameSync(made, aside);
  rmdirSync(directory);
  renameSync(aside, directory);
}
