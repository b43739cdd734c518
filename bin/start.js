/** `npm start`: serves the program of this checkout. It builds only when a source is newer than the build. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { isBuildOld } from './build-age.js';
import { findStale } from './check-dependencies.js';

const root = new URL('../', import.meta.url);
const stale = findStale(root);
if (stale !== undefined) {
  process.stderr.write(`sandkeep: ${stale}\n`);
  process.exit(1);
}
if (isBuildOld(root)) {
  process.stderr.write(
    'sandkeep: the source is newer than the build: building, which takes about half a minute\n',
  );
  const { status } = spawnSync('npm', ['run', '-s', 'build'], { cwd: fileURLToPath(root), stdio: 'inherit' });
  if (status !== 0) {
    process.stderr.write('sandkeep: the build failed: its errors are above\n');
    process.exit(status ?? 1);
  }
}
process.argv.splice(2, 0, 'serve');
await import('./sandkeep');
