import { readFileSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { writeFileAtomicallySync } from '../lib/atomic-file.js';
import { syncDirectorySync } from '../lib/directories.js';
import { ExplainedError } from '../lib/explained-error.js';

export interface UnfinishedRestore {
  id: string;
  /** The backup. */
  file: string;
  /** The files and directories that the restore creates; all of them were missing before. */
  creates: string[];
  /** Everything is there and verified: only the opening of the database may be missing. */
  isComplete?: boolean;
}

function markOf(dataDir: string): string {
  return join(dataDir, 'unfinished-restore');
}

/** Throws ExplainedError for a damaged mark. */
export function findUnfinished(dataDir: string): UnfinishedRestore | undefined {
  let text: string;
  try {
    text = readFileSync(markOf(dataDir), 'utf8');
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return undefined;
    throw error;
  }
  try {
    return JSON.parse(text) as UnfinishedRestore;
  } catch (cause) {
    throw new ExplainedError(`${markOf(dataDir)} is damaged: remove the data directory, then restore again`, {
      cause,
    });
  }
}

export function markUnfinished(dataDir: string, mark: UnfinishedRestore): void {
  writeFileAtomicallySync(markOf(dataDir), JSON.stringify(mark), { replace: true });
}

export function unmark(dataDir: string): void {
  rmSync(markOf(dataDir), { force: true });
  syncDirectorySync(dataDir);
}

/** Throws ExplainedError when a restore has not finished: its files are not an installation. */
export function refuseUnfinished(dataDir: string): void {
  const unfinished = findUnfinished(dataDir);
  if (!unfinished) return;
  const { file } = unfinished;
  throw new ExplainedError(
    `a restore of ${file} into ${resolve(dataDir)} has not finished: run "sandkeep restore ${file}" with the same options again, which begins by removing what it left`,
  );
}
