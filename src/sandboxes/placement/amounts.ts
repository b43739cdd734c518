/** The needs of a run, and the capacity of a worker. Disk null: the worker does not count it. */
export interface Amounts {
  vcpus: number;
  memoryMib: number;
  diskMib: number | null;
}

export function fits(needs: Amounts, room: Amounts): boolean {
  return (
    // A sandbox that shares the CPU fits beside any number, also where the capacity was lowered below its use.
    (needs.vcpus === 0 || needs.vcpus <= room.vcpus) &&
    needs.memoryMib <= room.memoryMib &&
    (room.diskMib === null || (needs.diskMib ?? 0) <= room.diskMib)
  );
}

export function sum(all: readonly Amounts[]): Amounts {
  const disks = all.flatMap(({ diskMib }) => diskMib ?? []);
  return {
    vcpus: all.reduce((total, { vcpus }) => total + vcpus, 0),
    memoryMib: all.reduce((total, { memoryMib }) => total + memoryMib, 0),
    diskMib: disks.length === 0 ? null : disks.reduce((total, diskMib) => total + diskMib, 0),
  };
}

export function subtract(room: Amounts, needs: Amounts): Amounts {
  return {
    vcpus: room.vcpus - needs.vcpus,
    memoryMib: room.memoryMib - needs.memoryMib,
    diskMib: room.diskMib === null ? null : room.diskMib - (needs.diskMib ?? 0),
  };
}

/** The largest of the shares of vCPUs, memory and disk. */
export function dominantShare(used: Amounts, total: Amounts): number {
  const share = (part: number, whole: number | null) => (whole === null || whole <= 0 ? 0 : part / whole);
  return Math.max(
    share(used.vcpus, total.vcpus),
    share(used.memoryMib, total.memoryMib),
    share(used.diskMib ?? 0, total.diskMib),
  );
}
