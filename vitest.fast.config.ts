import { configDefaults, defineConfig } from 'vitest/config';
import config from './vitest.config.js';

/** The units and the API, without the files that are called slow: for each change. They need no build. */
export default defineConfig({
  test: {
    ...config.test,
    include: ['test/{unit,api}/**/*.test.ts'],
    exclude: [...configDefaults.exclude, '**/*.slow.test.ts'],
  },
});
