import { lstatSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { baseOf, walOf } from '../../db/embedded/wal-archive.js';
import { parseInstant, type Instant } from '../../lib/instant.js';
import { isDirectory } from '../files/kept-files.js';

/** A copy of the files of PostgreSQL, and the log that makes it consistent. */
export interface BaseCopy {
  format: 1;
  product: string;
  startedAt: Instant;
  endedAt: Instant;
  firstSegment: string;
  lastSegment: string;
  /** The file `backup_label`, which tells PostgreSQL where the replay begins. */
  label: string;
}

export interface StoredCopy extends BaseCopy {
  directory: string;
}

/** Written last, and removed first: a directory without it is not a base copy. */
export const BASE_FILE = 'base.json';
export const CLUSTER_FILE = 'cluster.tar.gz';
export const BASE_NAME = /^\d{8}T\d{9}Z$/;

const SEGMENT = /^[0-9A-F]{24}$/;
const SEGMENTS_OF_HALF = 256;

/** Complete base copies, in the order of the log. Anything else in the directory is ignored. */
export function baseCopiesIn(root: string): StoredCopy[] {
  if (!isDirectory(baseOf(root))) return [];
  return readdirSync(baseOf(root))
    .filter((name) => BASE_NAME.test(name))
    .flatMap((name) => readBaseCopy(join(baseOf(root), name)) ?? [])
    .toSorted((a, b) => (a.firstSegment < b.firstSegment ? -1 : a.firstSegment > b.firstSegment ? 1 : 0));
}

function readBaseCopy(directory: string): StoredCopy | undefined {
  if (!isDirectory(directory) || !isFile(join(directory, CLUSTER_FILE))) return undefined;
  const file = join(directory, BASE_FILE);
  if (!isFile(file)) return undefined;
  try {
    const copy = JSON.parse(readFileSync(file, 'utf8')) as BaseCopy;
    const isValid =
      copy.format === 1 &&
      [copy.firstSegment, copy.lastSegment].every((name) => SEGMENT.test(name)) &&
      [copy.startedAt, copy.endedAt].every((time) => parseInstant(time) === time) &&
      [copy.product, copy.label].every((text) => typeof text === 'string');
    return isValid ? { ...copy, directory } : undefined;
  } catch {
    return undefined;
  }
}

export function segmentFile(root: string, segment: string): string {
  return join(walOf(root), `${segment}.gz`);
}

export function isArchived(root: string, segment: string): boolean {
  return isFile(segmentFile(root, segment));
}

export function segmentsFrom(root: string, first: string): string[] {
  const timeline = first.slice(0, 8);
  return readdirSync(walOf(root))
    .filter((name) => name.endsWith('.gz'))
    .map((name) => name.slice(0, -'.gz'.length))
    .filter((name) => SEGMENT.test(name) && name.startsWith(timeline) && name >= first)
    .filter((name) => isArchived(root, name))
    .toSorted();
}

export function segmentAfter(segment: string): string {
  const [high, low] = [parseInt(segment.slice(8, 16), 16), parseInt(segment.slice(16), 16) + 1];
  const hex = (value: number) => value.toString(16).toUpperCase().padStart(8, '0');
  const [next, rest] = low < SEGMENTS_OF_HALF ? [high, low] : [high + 1, 0];
  return `${segment.slice(0, 8)}${hex(next)}${hex(rest)}`;
}

function isFile(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isFile() === true;
}
