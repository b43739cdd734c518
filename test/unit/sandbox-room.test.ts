import { expect, test } from 'vitest';
import { sandboxRoom } from '../../src/engines/docker/sandbox-room.js';

const read = (values: Record<string, string>) => (name: string) => values[name] ?? 'Infinity';

test('the tables of the kernel that end before the memory are named with their remedy', () => {
  const values = { 'kernel.pid_max': '32768\n', 'net.ipv4.neigh.default.gc_thresh3': '1024\n' };
  expect(sandboxRoom(24_000, read(values))).toEqual({
    room: 448,
    low: [
      { name: 'kernel.pid_max', value: '32768', remedy: 'kernel.pid_max=4194304' },
      {
        name: 'net.ipv4.neigh.default.gc_thresh3',
        value: '1024',
        remedy: 'net.ipv4.neigh.default.gc_thresh2=8192 net.ipv4.neigh.default.gc_thresh3=16384',
      },
    ],
  });
});

test('a small machine needs no larger tables', () => {
  const values = { 'kernel.pid_max': '32768', 'net.ipv4.neigh.default.gc_thresh3': '1024' };
  expect(sandboxRoom(4_000, read(values))).toEqual({ room: 400, low: [] });
});
