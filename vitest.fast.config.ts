import { existsSync } from 'node:fs';
import { configDefaults, defineConfig } from 'vitest/config';
import config from './vitest.config.js';

/** Files of the API that wait for long, work for long, or start the built program or a browser. */
const SLOW: Readonly<Record<string, readonly string[]>> = {
  agent: ['files', 'limits'],
  audit: [
    ...[
      'altered-schema',
      'concurrent-sealers',
      'cursors',
      'export',
      'export-part-boundary',
      'long-events',
      'migration',
    ],
    ...['partition-creation', 'retention', 'signing-keys', 'stolen-signing-key', 'stream', 'tampering'],
    'verify',
  ],
  http: ['connections', 'docs-page', 'fair-shares', 'fuzz', 'rate-limits', 'shared-connections'],
  keys: ['cache'],
  members: ['members-and-quotas'],
  quotas: ['counters', 'limits'],
  sandboxes: [
    ...['batched-lookups', 'list-query-plans', 'logs', 'placement-query-plans', 'query-cost'],
    ...['queued-starts', 'stalled-sandboxes', 'state-table', 'workers'],
  ],
  sessions: ['ends', 'idle', 'lost-sessions'],
  usage: ['slow-readers', 'storage-cost', 'streamed-reports'],
  volumes: ['fair-files', 'planted-links', 'size-samples'],
  webhooks: [
    ...['address-check', 'concurrency-limits', 'deliveries', 'failing-receivers', 'interruptions'],
    'secret-keys',
  ],
};

const slow = Object.entries(SLOW).flatMap(([folder, names]) =>
  names.map((name) => `test/api/${folder}/${name}.test.ts`),
);
for (const file of slow) {
  if (!existsSync(file)) throw new Error(`there is no ${file}: correct the list in vitest.fast.config.ts`);
}

/** The tests of a minute: units and the API. */
export default defineConfig({
  test: {
    ...config.test,
    include: ['test/unit/**/*.test.ts', 'test/api/**/*.test.ts'],
    // log-output starts the built program, and guest-agent also runs another processor's program.
    exclude: [...configDefaults.exclude, 'test/unit/{guest-agent,log-output}.test.ts', ...slow],
  },
});
