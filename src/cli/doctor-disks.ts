import { measure, type DiskPlace, type DiskRoom } from '../disk/disk-reserve.js';
import type { Config } from '../config/options.js';
import type { Finding } from '../engine/finding.js';

const MIB = 1024 ** 2;

const REMEDIES: Record<DiskPlace, string> = {
  data: 'remove logs and backups beside the data directory',
  volumes: 'delete volumes and their files',
  engine: 'docker image prune --all; delete sandboxes',
};

export async function inspectDisks(
  { dataDir, volumesDir, diskReserveMib }: Pick<Config, 'dataDir' | 'volumesDir' | 'diskReserveMib'>,
  enginePath: string | undefined,
): Promise<Finding[]> {
  const paths = { data: dataDir, volumes: volumesDir, engine: enginePath };
  const rooms = await Promise.all(
    (Object.keys(paths) as DiskPlace[]).map(async (place) => {
      const path = paths[place];
      return path === undefined ? undefined : measure(place, path, diskReserveMib);
    }),
  );
  return rooms.filter((room) => room !== undefined).map(describeRoom);
}

function describeRoom(room: DiskRoom): Finding {
  const { place, path, freeBytes, reserveBytes, freeInodes, reserveInodes } = room;
  const free = `${mib(freeBytes)} free in ${path}, ${mib(reserveBytes)} in reserve`;
  const inodes = freeInodes !== null && freeInodes < reserveInodes ? `; only ${freeInodes} inodes free` : '';
  const isShort = freeBytes < reserveBytes || inodes !== '';
  const check = `${place} disk`;
  if (!isShort) return { check, state: 'ok', found: free };
  const effect = 'uploads, creates and starts are refused until there is room';
  return { check, state: 'missing', found: `${free}${inodes}: ${effect}`, remedy: REMEDIES[place] };
}

function mib(bytes: number): string {
  return `${Math.floor(bytes / MIB).toLocaleString('en-US')} MiB`;
}
