import { Buffer } from 'node:buffer';
import { expect, test } from 'vitest';
import type { FileStat, Guest, GuestFiles } from '../../src/guest/guest.js';
import { read } from '../../src/sandboxes/files/read.js';
import type { Visit } from '../../src/sandboxes/sessions/entrance.js';

const [REGULAR, DEVICE] = [0o100644, 0o020666];
const stat = (mode: number): FileStat => ({ mode, uid: 0, gid: 0, size: 0n, mtime: 0n, atime: 0n });

/** A guest that moves a link between two files. */
function visitOf(named: number, opened: number): { visit: Visit; calls: string[] } {
  const calls: string[] = [];
  const note = <T>(call: string, result: T): Promise<T> => {
    calls.push(call);
    return Promise.resolve(result);
  };
  const files: Partial<GuestFiles> = {
    stat: () => note('stat', stat(named)),
    open: () => note('open', 1),
    statOpen: () => note('statOpen', stat(opened)),
    read: () => note('read', Buffer.alloc(0)),
    end: () => calls.push('end'),
  };
  const guest = { files: () => files as GuestFiles } as Guest;
  const recorder = {
    files: () => Promise.resolve({}),
    close: () => undefined,
  } as unknown as Visit['recorder'];
  return { visit: { guest, recorder, ended: new AbortController().signal } as unknown as Visit, calls };
}

test('a device is not opened', async () => {
  const { visit, calls } = visitOf(DEVICE, DEVICE);
  await expect(read(visit, '/file')).rejects.toThrow('/file is not a file');
  expect(calls).toEqual(['stat', 'end']);
});

test('a device that takes the place of the file before it is opened is not read', async () => {
  const { visit, calls } = visitOf(REGULAR, DEVICE);
  await expect(read(visit, '/file')).rejects.toThrow('/file is not a file');
  expect(calls).toEqual(['stat', 'open', 'statOpen', 'end']);
});
