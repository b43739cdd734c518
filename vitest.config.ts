import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    // Two cores: more files at once only wait for each other.
    maxWorkers: 2,
    // Far more than any takes: a machine that is busy with something else makes no test fail.
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});
