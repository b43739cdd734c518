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
import { until } from '../support/polling.js';
import { removedBytes } from '../../src/engine/removed-files.js';

const MIB = 1024 ** 2;
const folder = mkdtempSync(join(tmpdir(), 'sandkeep-removed-'));
const disk = statSync(folder).dev;
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const never = new AbortController().signal;
const held = async (pids: number[] = [process.pid]) =>
  (await removedBytes(async () => pids, never)).get(disk) ?? 0;

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

/** A process of Python that holds a removed file of a MiB in the way of `hold`, and has said so. */
async function heldBy(name: string, hold: string) {
  const script = `
import ctypes, os, sys, threading, time
def removed():
    path = sys.argv[1]
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    os.write(descriptor, b"x" * (1 << 20))
    os.unlink(path)
    return descriptor
def say():
    print(threading.get_native_id(), flush=True)
    time.sleep(100000)
${hold}`;
  const child = spawn('python3', ['-c', script, join(folder, name)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  const [thread] = await once(child.stdout, 'data');
  return [child.pid!, Number(String(thread))];
}

test.each([
  [
    'of a thread whose process has a main thread that has ended',
    `
def hold():
    global descriptor
    descriptor = removed()
    say()
threading.Thread(target=hold).start()
time.sleep(0.1)
ctypes.CDLL(None).pthread_exit(None)`,
  ],
  [
    'of a thread with descriptors of its own',
    `
def hold():
    CLONE_FILES = 0x400
    assert ctypes.CDLL(None).unshare(CLONE_FILES) == 0
    descriptor = removed()
    say()
threading.Thread(target=hold).start()`,
  ],
])('a removed file counts %s', async (what, hold) => {
  const threads = await heldBy(what, hold);
  await until(
    async () => held([threads[0]!]),
    (bytes) => bytes === 0,
  );
  expect(await held(threads)).toBeGreaterThanOrEqual(MIB);
});

test('threads that begin during the search are looked at, and none are missed without an error', async () => {
  const { path, room } = hold('passed-on', 2);
  const before = await held();
  unlinkSync(path);
  let lists = 0;
  const late = async () => ((lists += 1) < 4 ? [1_000_000_000 + lists] : [process.pid]);
  expect(((await removedBytes(late, never)).get(disk) ?? 0) - before).toBe(room());
  const endless = async () => [1_000_000_000 + (lists += 1)];
  await expect(removedBytes(endless, never)).rejects.toThrow('threads begin faster');
});

test('a process that has ended holds nothing, and an abort ends the search', async () => {
  const child = spawn('true');
  await once(child, 'exit');
  expect(await held([child.pid!])).toBe(0);
  await expect(
    removedBytes(async () => [process.pid], AbortSignal.abort(new Error('too late'))),
  ).rejects.toThrow('too late');
});
