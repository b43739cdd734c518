import { describe, expect, test } from 'vitest';
import type { Amounts } from '../../src/sandboxes/placement/amounts.js';
import type { Candidate } from '../../src/sandboxes/placement/assign.js';
import { explainNoRoom } from '../../src/sandboxes/placement/explain-no-room.js';

const amounts = (vcpus: number, memoryMib = 100, diskMib: number | null = null): Amounts => ({
  vcpus,
  memoryMib,
  diskMib,
});
const worker = (id: string, capacity: Amounts, free: Amounts): Candidate => ({
  id,
  capacity,
  free,
  capabilities: new Set<string>(),
});
const explain = (needs: Amounts, workers: Candidate[], pinnedTo: string | null = null) =>
  explainNoRoom(
    { needs, pinnedTo, capabilities: [] },
    workers,
    new Map(workers.map(({ id, free }) => [id, free])),
  );

describe('a start without room says', () => {
  test('the missing amounts, the free ones, and the remedy', () => {
    const full = worker('a', amounts(8, 1_000), amounts(0, 500));
    expect(explain(amounts(1), [full])).toBe(
      'needs 1 vCPU, 0 of 8 free; raise --capacity-vcpus, or stop a sandbox',
    );
    expect(explain(amounts(2, 600), [full])).toBe(
      'needs 2 vCPUs, 0 of 8 free and 600 MiB of memory, 500 of 1000 MiB free; raise --capacity-vcpus and add a worker, or stop a sandbox',
    );
    const disk = worker('a', amounts(8, 1_000, 50), amounts(8, 1_000, 10));
    expect(explain(amounts(1, 100, 20), [disk])).toBe(
      'needs 20 MiB of disk, 10 of 50 MiB free; raise --capacity-disk-mib, or delete a sandbox',
    );
  });

  test('which worker it means, and never a negative number', () => {
    const workers = [
      worker('a', amounts(8), amounts(-3, 100)),
      worker('b', amounts(4), amounts(2, 100)),
      worker('c', amounts(2), amounts(2, 100)),
    ];
    expect(explain(amounts(4), workers)).toBe(
      'needs 4 vCPUs, 2 of 4 free on the worker with the most room of 2; raise --capacity-vcpus, or stop a sandbox',
    );
    expect(explain(amounts(4), workers, 'a')).toMatch(
      /^needs 4 vCPUs, 0 of 8 free on the worker with its disk; /,
    );
  });

  test('that it can never have room, waits for its turn, or has no worker', () => {
    const one = worker('a', amounts(8), amounts(8));
    expect(explain(amounts(16), [one])).toBe(
      'needs 16 vCPUs, and a worker has 8 in all; raise --capacity-vcpus, or ask for less',
    );
    expect(explain(amounts(1), [one])).toMatch(/^it waits for its turn/);
    expect(explain(amounts(1), [one], 'gone')).toMatch(/^no live worker/);
  });
});
