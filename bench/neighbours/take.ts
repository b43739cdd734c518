import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { BUILDS } from '../../src/guest/programs.js';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';

/** Opens inotify instances or terminals in a sandbox; see guest/take/main.c. An image may have no such program. */
export const TAKE = '/take';

/** The field `patches` of a sandbox that has the program. */
export function withTake(): { patches: object[] } {
  const build = BUILDS[process.arch === 'x64' ? 'x86_64' : process.arch] ?? process.arch;
  const content = readFileSync(join(PACKAGE_ROOT, 'guest', `take-${build}`)).toString('base64');
  return { patches: [{ type: 'file', path: TAKE, content, mode: 0o755, replace: true }] };
}
