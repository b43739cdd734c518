import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createPrivateFile } from '../../lib/private-file.js';
import { newId } from '../../lib/uuid.js';

const FILE = 'engine-id';

/** When two processes create the file at once, both use the first one. */
export function engineIdIn(directory: string): string {
  createPrivateFile(join(directory, FILE), newId);
  return readEngineId(directory)!;
}

/** Undefined: no engine was in the directory. */
export function readEngineId(directory: string): string | undefined {
  try {
    return readFileSync(join(directory, FILE), 'utf8').trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return undefined;
  }
}
