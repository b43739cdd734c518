import { readSysctl } from './shared-limits.js';

/** MiB of a sandbox with a network that does nothing: two shims of containerd and its part of the kernel. */
const LEAST_MIB = 10;

interface Table {
  name: string;
  /** A sandbox with a network takes so many. */
  each: number;
  /** All other programs of the machine. */
  others: number;
  remedy: string;
}

/** Tables of the kernel that all sandboxes share. docs/performance/measurements.md has the figures. */
const TABLES: readonly Table[] = [
  // Two shims with 11 threads each, their programs, and a command.
  { name: 'kernel.pid_max', each: 28, others: 4_096, remedy: 'kernel.pid_max=4194304' },
  { name: 'kernel.threads-max', each: 28, others: 4_096, remedy: 'kernel.threads-max=4194304' },
  {
    // The machine and the sandbox have one of each other. One bound is for all network namespaces.
    name: 'net.ipv4.neigh.default.gc_thresh3',
    each: 2,
    others: 128,
    remedy: 'net.ipv4.neigh.default.gc_thresh2=8192 net.ipv4.neigh.default.gc_thresh3=16384',
  },
];

/** How many sandboxes with networks the machine has room for, and the tables that end before its memory does. */
export function sandboxRoom(
  memoryMib: number,
  read: (name: string) => string = readSysctl,
): { room: number; low: { name: string; value: string; remedy: string }[] } {
  const byMemory = Math.floor(memoryMib / LEAST_MIB);
  const rooms = TABLES.map(({ name, each, others, remedy }) => {
    const value = read(name).trim();
    return { name, value, remedy, room: Math.max(0, Math.floor((Number(value) - others) / each)) };
  });
  return {
    room: Math.min(byMemory, ...rooms.map(({ room }) => room)),
    low: rooms.flatMap(({ room, ...table }) => (room < byMemory ? [table] : [])),
  };
}
