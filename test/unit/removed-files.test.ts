import { spawn } from 'node:child_process';
import {
  closeSync,
  fstatSync,
  linkSync,
  mkdtempSync,
  openSync,
  rmSync,
  statSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, onTestFinished, test } from 'vitest';
import { removedBytes } from '../../src/engine/removed-files.js';

const MIB = 1024 ** 2;
const folder = mkdtempSync(join(tmpdir(), 'sandkeep-removed-'));
const disk = statSync(folder).dev;
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const never = new AbortController().signal;
const held = async (pids: number[] = [process.pid]) => (await removedBytes(pids, never)).get(disk) ?? 0;

function hold(name: string, mib: number) {
  const path = join(folder, name);
  const descriptor = openSync(path, 'w+');
  onTestFinished(() => closeSync(descriptor));
  writeSync(descriptor, Buffer.alloc(mib * MIB, 1));
  // A file system may give a file more blocks than its bytes need.
  return { path, descriptor, room: () => fstatSync(descriptor).blocks * 512 };
}

test('a removed file counts while it is open, by the blocks that it has', async () => {
  const before = await held();
  const { path, descriptor, room } = hold('one', 3);
  expect(await held()).toBe(before);
  unlinkSync(path);
  expect((await held()) - before).toBe(room());
  expect(room()).toBeGreaterThanOrEqual(3 * MIB);
  writeSync(descriptor, Buffer.alloc(MIB, 1), 0, MIB, 1_000 * MIB);
  expect((await held()) - before).toBe(room());
  expect(room()).toBeLessThan(100 * MIB);
});

test('a file counts once, however often and by however many processes it is held', async () => {
  const before = await held();
  const { path, descriptor, room } = hold('shared', 2);
  const again = openSync(path, 'r');
  onTestFinished(() => closeSync(again));
  unlinkSync(path);
  const child = spawn('sleep', ['1000'], { stdio: ['ignore', descriptor, descriptor] });
  onTestFinished(() => void child.kill());
  expect((await held([process.pid, child.pid!])) - before).toBe(room());
  expect(await held([child.pid!])).toBe(room());
});

test('a file with another name does not count, also if its name ends like that of a removed one', async () => {
  const before = await held();
  const { path } = hold('named', 2);
  linkSync(path, join(folder, 'other (deleted)'));
  unlinkSync(path);
  expect(await held()).toBe(before);
});

test.skipIf(process.getuid?.() !== 0)('a removed file counts that is only mapped into memory', async () => {
  const script = `
import mmap, os, sys
path = sys.argv[1]
with open(path, "w+b") as file:
    file.write(b"x" * (5 << 20))
    file.flush()
    area = mmap.mmap(file.fileno(), 0)
room = os.stat(path).st_blocks * 512
os.unlink(path)
os.closerange(3, 100)
print(room, flush=True)
sys.stdin.read()`;
  const child = spawn('python3', ['-c', script, join(folder, 'mapped')], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  onTestFinished(() => void child.kill());
  const [room] = await once(child.stdout, 'data');
  expect(Number(String(room))).toBeGreaterThanOrEqual(5 * MIB);
  expect(await held([child.pid!])).toBe(Number(String(room)));
});

test('a process that has ended holds nothing, and an abort ends the search', async () => {
  const child = spawn('true');
  await once(child, 'exit');
  expect(await held([child.pid!])).toBe(0);
  await expect(removedBytes([process.pid], AbortSignal.abort(new Error('too late')))).rejects.toThrow(
    'too late',
  );
});
