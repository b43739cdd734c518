/** Builds the console into dist/console. */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { PACKAGE_ROOT } from '../src/lib/package-root.js';
import { buildOnce } from './build-stamp.js';

function run(program: string, ...args: string[]): void {
  execFileSync(join(PACKAGE_ROOT, 'node_modules', '.bin', program), args, {
    cwd: PACKAGE_ROOT,
    stdio: 'inherit',
  });
}

// The console builds the verifier of exports too.
await buildOnce('console', ['console', 'src/audit', 'src/lib'], () => {
  run('tsc', '-p', 'console/tsconfig.json');
  run('vite', 'build', '--config', 'console/vite.config.ts', '--logLevel', 'warn');
});
