import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PACKAGE_ROOT } from '../src/lib/package-root.js';

/** Calls `build` for dist/`name`, unless it was built from the same files of `folders` and the same dependencies. */
export async function buildOnce(
  name: string,
  folders: readonly string[],
  build: (output: string) => unknown,
): Promise<void> {
  const output = join(PACKAGE_ROOT, 'dist', name);
  const stampFile = `${output}.stamp`;
  const stamp = stampOf(folders);
  if (existsSync(output) && existsSync(stampFile) && readFileSync(stampFile, 'utf8') === stamp) {
    // bin/build-age.js compares its time with those of the sources.
    utimesSync(stampFile, new Date(), new Date());
    return;
  }
  rmSync(stampFile, { force: true });
  await build(output);
  writeFileSync(stampFile, stamp);
}

function stampOf(folders: readonly string[]): string {
  const names = folders
    .flatMap((folder) => readdirSync(join(PACKAGE_ROOT, folder), { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .toSorted();
  const hash = createHash('sha256');
  for (const name of [...names, join(PACKAGE_ROOT, 'package-lock.json')]) {
    hash.update(name).update('\0').update(readFileSync(name));
  }
  return hash.digest('hex');
}
