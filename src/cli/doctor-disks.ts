import { measure, type DiskPlace, type DiskRoom } from '../disk/disk-reserve.js';
import type { Config } from '../config/options.js';

const MIB = 1024 ** 2;

const REMEDIES: Record<DiskPlace, string> = {
  data: 'logs and backups beside the data directory',
  volumes: 'volumes and their files',
  engine: 'sandboxes, and images ("docker system prune --all")',
};

export async function inspectDisks(
  { dataDir, volumesDir, diskReserveMib }: Pick<Config, 'dataDir' | 'volumesDir' | 'diskReserveMib'>,
  enginePath: string | undefined,
): Promise<{ check: string; state: 'ok' | 'missing'; found: string }[]> {
  const paths = { data: dataDir, volumes: volumesDir, engine: enginePath };
  const rooms = await Promise.all(
    (Object.keys(paths) as DiskPlace[]).map(async (place) => {
      const path = paths[place];
      return path === undefined ? undefined : measure(place, path, diskReserveMib);
    }),
  );
  return rooms.filter((room) => room !== undefined).map(describeRoom);
}

function describeRoom(room: DiskRoom): { check: string; state: 'ok' | 'missing'; found: string } {
  const { place, path, freeBytes, reserveBytes, freeInodes, reserveInodes } = room;
  const free = `${mib(freeBytes)} free in ${path}, ${mib(reserveBytes)} in reserve`;
  const inodes = freeInodes !== null && freeInodes < reserveInodes ? `; only ${freeInodes} inodes free` : '';
  const isShort = freeBytes < reserveBytes || inodes !== '';
  const remedy = `: uploads, creates and starts are refused until there is room. Remove ${REMEDIES[place]}`;
  return {
    check: `${place} disk`,
    state: isShort ? 'missing' : 'ok',
    found: `${free}${inodes}${isShort ? remedy : ''}`,
  };
}

function mib(bytes: number): string {
  return `${Math.floor(bytes / MIB).toLocaleString('en-US')} MiB`;
}
