import { fits, type Amounts } from './amounts.js';
import type { Candidate, WaitingRun } from './assign.js';

interface Shortage {
  text: string;
  remedy: string;
}

/**
 * Says for callers why a run finds no room, in figures of the workers that could take it. `free`: what a pass leaves.
 * Pure.
 */
export function explainNoRoom(
  { needs, pinnedTo, capabilities }: Pick<WaitingRun, 'needs' | 'pinnedTo' | 'capabilities'>,
  workers: readonly Candidate[],
  free: ReadonlyMap<string, Amounts>,
): string {
  const suitable = workers.filter(
    (worker) =>
      (pinnedTo === null || worker.id === pinnedTo) &&
      capabilities.every((capability) => worker.capabilities.has(capability)),
  );
  const large = suitable.filter(({ capacity }) => fits(needs, capacity));
  const room = (worker: Candidate) => free.get(worker.id) ?? worker.free;
  const [best] = (large.length > 0 ? large : suitable).toSorted(
    (a, b) => part(needs, room(b)) - part(needs, room(a)),
  );
  if (!best) return 'no live worker can run it: see "sandkeep worker list"';
  if (large.length === 0) return neverFits(needs, best.capacity);
  const short = shortages(needs, room(best), best.capacity);
  if (short.length === 0) return 'it waits for its turn: the free room is kept for starts that wait longer';
  const where = pinnedTo !== null && workers.length > 1 ? ' on the worker with its disk' : placeOf(large);
  return `needs ${short.map(({ text }) => text).join(' and ')}${where}; ${remedies(short)}`;
}

function part(needs: Amounts, room: Amounts): number {
  const ratio = (need: number, has: number | null) =>
    need <= 0 || has === null ? Infinity : Math.max(0, has) / need;
  return Math.min(
    ratio(needs.vcpus, room.vcpus),
    ratio(needs.memoryMib, room.memoryMib),
    ratio(needs.diskMib ?? 0, room.diskMib),
  );
}

function shortages(needs: Amounts, room: Amounts, capacity: Amounts): Shortage[] {
  const { diskMib } = room;
  const found: [boolean, Shortage][] = [
    [
      needs.vcpus > 0 && needs.vcpus > room.vcpus,
      {
        text: `${vcpus(needs.vcpus)}, ${atLeast0(room.vcpus)} of ${capacity.vcpus} free`,
        remedy: 'raise --capacity-vcpus',
      },
    ],
    [
      // The remedy is no option: memory is not overcommitted.
      needs.memoryMib > room.memoryMib,
      {
        text: `${needs.memoryMib} MiB of memory, ${atLeast0(room.memoryMib)} of ${capacity.memoryMib} MiB free`,
        remedy: 'add a worker',
      },
    ],
    [
      diskMib !== null && (needs.diskMib ?? 0) > diskMib,
      {
        text: `${needs.diskMib ?? 0} MiB of disk, ${atLeast0(diskMib ?? 0)} of ${capacity.diskMib ?? 0} MiB free`,
        remedy: 'raise --capacity-disk-mib',
      },
    ],
  ];
  return found.flatMap(([isShort, shortage]) => (isShort ? [shortage] : []));
}

function remedies(short: readonly Shortage[]): string {
  const isDisk = short.some(({ remedy }) => remedy.includes('disk'));
  return `${short.map(({ remedy }) => remedy).join(' and ')}, or ${isDisk ? 'delete' : 'stop'} a sandbox`;
}

function placeOf(large: readonly Candidate[]): string {
  return large.length === 1 ? '' : ` on the worker with the most room of ${large.length}`;
}

function neverFits(needs: Amounts, capacity: Amounts): string {
  const short = shortages(needs, capacity, capacity);
  const has = short.map(({ text }) => text.replace(/, (\d+) of .*$/, ', and a worker has $1 in all'));
  return `needs ${has.join(' and ')}; ${short.map(({ remedy }) => remedy).join(' and ')}, or ask for less`;
}

const vcpus = (count: number) => (count === 1 ? '1 vCPU' : `${count} vCPUs`);
const atLeast0 = (amount: number) => Math.max(0, amount);
