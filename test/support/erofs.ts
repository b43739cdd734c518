import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { lstatSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import tar from 'tar-stream';
import { describe, onTestFinished } from 'vitest';
import { ImageBudget } from '../../src/registry/layer-check.js';
import { buildBase, BASE_FILE, type Base, type Layer } from '../../src/engines/microvm/images/build-base.js';
import { digestOf } from './private-registry.js';

const reason = whyNot();

/** Tests that mount images of EROFS. With SANDKEEP_TEST_MICROVM=required they fail where that is impossible. */
export const describeErofs =
  reason === undefined || process.env['SANDKEEP_TEST_MICROVM'] === 'required'
    ? describe
    : (name: string, body: () => void) => describe.skip(`${name} — SKIPPED: ${reason}`, body);

if (reason !== undefined) console.warn(`the tests of the images of microVMs are SKIPPED: ${reason}`);

function whyNot(): string | undefined {
  if (process.getuid?.() !== 0) return 'they need root';
  const hasErofs = readFileSync('/proc/filesystems', 'utf8').includes('\terofs\n');
  return hasErofs ? undefined : 'the kernel has no EROFS';
}

export function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sandkeep-erofs-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export function layersOf(layers: readonly Buffer[], packed = layers): Layer[] {
  return layers.map((layer, index) => ({
    diffId: digestOf(layer),
    open: async () => Promise.resolve(Readable.from(inPieces(packed[index]!))),
  }));
}

/** Pieces of odd lengths. */
function* inPieces(bytes: Buffer): Generator<Buffer> {
  for (let at = 0, length = 1; at < bytes.length; at += length, length = (length * 7) % 65_521) {
    yield bytes.subarray(at, at + length);
  }
}

interface Options {
  maxBytes?: number;
  folder?: string;
  signal?: AbortSignal;
}

export async function build(
  layers: readonly Layer[],
  { maxBytes = Infinity, folder = makeFolder(), signal = new AbortController().signal }: Options = {},
): Promise<Base & { file: string }> {
  const base = await buildBase(layers, {
    directory: folder,
    budget: new ImageBudget({ bytes: maxBytes, beyond: 'too_large' }, () => undefined),
    step: async (work) => Promise.resolve(work()),
    signal,
  });
  return { ...base, file: join(folder, BASE_FILE) };
}

/** Until the end of the test. */
export function mount(file: string): string {
  const folder = makeFolder();
  const point = join(folder, 'base');
  mkdirSync(point);
  execFileSync('mount', ['-t', 'erofs', '-o', 'loop,ro', file, point]);
  onTestFinished(() => void execFileSync('umount', [point]));
  return point;
}

/**
 * Every file of a directory as a line: the bytes of its name, and all that a program can see of it. Other names of an
 * inode are named. The times of directories are left out, because each new file changes them.
 */
export async function describeTree(folder: string): Promise<string[]> {
  const lines: string[] = [];
  const names = new Map<bigint, string>();
  const xattrs = await xattrsOf(folder);
  const visit = (path: Buffer, name: string) => {
    const { mode, uid, gid, rdev, size, ino, nlink, mtimeNs } = lstatSync(path, { bigint: true });
    const type = Number(mode) & 0o170000;
    const facts = [name, mode.toString(8), `${uid}:${gid}`, xattrs.get(name) ?? ''];
    if (type === 0o040000) facts.push('directory');
    else {
      const first = names.get(ino) ?? name;
      names.set(ino, first);
      facts.push(`${mtimeNs}`, `${nlink} names`, first);
    }
    if (type === 0o100000)
      facts.push(`${size}`, createHash('sha256').update(readFileSync(path)).digest('hex'));
    if (type === 0o120000) facts.push(readlinkSync(path, 'latin1'));
    if (type === 0o020000 || type === 0o060000) facts.push(`${rdev}`);
    lines.push(facts.join(' | '));
    if (type !== 0o040000) return;
    const children = readdirSync(path, 'buffer').toSorted((a, b) => a.compare(b));
    for (const child of children) {
      visit(Buffer.concat([path, Buffer.from('/'), child]), `${name}/${child.toString('latin1')}`);
    }
  };
  visit(Buffer.from(folder), '.');
  return lines;
}

/** The attributes of a file as its line has them. `pax`: records of an archive. */
export function xattrText(pax: Record<string, string>): string {
  const own = Object.entries(pax).filter(([key]) => key.startsWith('SCHILY.xattr.'));
  return own
    .map((record) => JSON.stringify(record))
    .toSorted()
    .join();
}

/** By GNU tar, for files with names of ASCII. */
async function xattrsOf(folder: string): Promise<Map<string, string>> {
  const flags = ['--xattrs', '--xattrs-include=*', '--format=pax', '--sort=name'];
  const archive = execFileSync('tar', ['-c', ...flags, '-C', folder, '.'], {
    maxBuffer: 512 * 1_024 * 1_024,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const found = new Map<string, string>();
  const extract = tar.extract();
  const read = new Promise((resolve, reject) => extract.on('finish', resolve).on('error', reject));
  extract.on('entry', (header: { name: string; pax?: Record<string, string> }, content, next) => {
    const text = xattrText(header.pax ?? {});
    if (text !== '') found.set(header.name.replace(/\/$/, ''), text);
    content.on('end', next).resume();
  });
  extract.end(archive);
  await read;
  return found;
}
