/** Builds the console into dist/console, unless it was built from the same files. */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PACKAGE_ROOT } from '../src/lib/package-root.js';

/** The console builds the verifier of exports too. */
const SOURCES = ['console', 'src/audit', 'src/lib'];
const STAMP = join(PACKAGE_ROOT, 'dist', 'console.stamp');

function stampOfSources(): string {
  const names = SOURCES.flatMap((folder) =>
    readdirSync(join(PACKAGE_ROOT, folder), { recursive: true, withFileTypes: true }),
  )
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .toSorted();
  const hash = createHash('sha256');
  for (const name of [...names, join(PACKAGE_ROOT, 'package-lock.json')]) {
    hash.update(name).update('\0').update(readFileSync(name));
  }
  return hash.digest('hex');
}

const stamp = stampOfSources();
const isBuilt = existsSync(join(PACKAGE_ROOT, 'dist', 'console', 'index.html'));
if (!isBuilt || !existsSync(STAMP) || readFileSync(STAMP, 'utf8') !== stamp) {
  rmSync(STAMP, { force: true });
  const run = (program: string, ...args: string[]) =>
    execFileSync(join(PACKAGE_ROOT, 'node_modules', '.bin', program), args, {
      cwd: PACKAGE_ROOT,
      stdio: 'inherit',
    });
  run('tsc', '-p', 'console/tsconfig.json');
  run('vite', 'build', '--config', 'console/vite.config.ts', '--logLevel', 'warn');
  writeFileSync(STAMP, stamp);
}
