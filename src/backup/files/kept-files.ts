import { lstatSync, readFileSync } from 'node:fs';
import { EVENT_HEADS_PART, EVENT_KEYS_PART, SECRET_KEYS_PART } from '../archive/format.js';

export interface KeptFile {
  part: string;
  path: string;
}

export interface Places {
  dataDir: string;
  volumesDir: string;
  secretKeysFile: string;
  eventKeysFile: string;
  secretKeys?: string | undefined;
  eventKeys?: string | undefined;
}

export function keyFilesOf({ secretKeys, secretKeysFile, eventKeys, eventKeysFile }: Places): KeptFile[] {
  return [
    ...(secretKeys === undefined ? [{ part: SECRET_KEYS_PART, path: secretKeysFile }] : []),
    ...(eventKeys === undefined ? [{ part: EVENT_KEYS_PART, path: eventKeysFile }] : []),
  ];
}

export function headsFileOf({ dataDir }: Places): KeptFile {
  return { part: EVENT_HEADS_PART, path: `${dataDir}/event-heads` };
}

/** Undefined: there is no such file. */
export function readKept({ path }: KeptFile): Buffer | undefined {
  try {
    return readFileSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** True for a directory, and false for a link to one. */
export function isDirectory(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}
