import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';

const BUILT = join(PACKAGE_ROOT, 'dist', 'console');
const LIMIT_BYTES = 60_000;

describe('the first load of the console', () => {
  test('is at most 60 kB compressed', () => {
    expect(existsSync(join(BUILT, 'index.html')), 'run "npm run build"').toBe(true);
    const html = readFileSync(join(BUILT, 'index.html'), 'utf8');
    const loaded = [...html.matchAll(/(?:src|href)="\.\/([^"]+)"/g)].map(([, name]) => name!);
    expect(loaded.some((name) => name.endsWith('.js'))).toBe(true);
    const sizes = ['index.html', ...loaded].map((name) => statSync(join(BUILT, `${name}.br`)).size);
    const total = sizes.reduce((sum, size) => sum + size, 0);
    console.log(`the first load of the console has ${total} bytes`);
    expect(total).toBeLessThanOrEqual(LIMIT_BYTES);
  });
});
