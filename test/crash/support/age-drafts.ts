import { existsSync, readdirSync, utimesSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Makes the drafts of a killed service old, so that the next one removes them at once: younger ones may be those of
 * another process, and stay for a minute.
 */
export function ageDrafts(directory: string): void {
  for (const name of existsSync(directory) ? readdirSync(directory) : [])
    if (name.startsWith('.new-')) utimesSync(join(directory, name), 0, 0);
}
