import { configDefaults, defineConfig } from 'vitest/config';
import config from './vitest.config.js';

/** Files that take more than seven seconds on two cores. */
const SLOW = [
  'test/api/audit/concurrent-sealers.test.ts',
  'test/api/audit/cursors.test.ts',
  'test/api/audit/export-part-boundary.test.ts',
  'test/api/audit/export.test.ts',
  'test/api/audit/long-events.test.ts',
  'test/api/audit/migration.test.ts',
  'test/api/audit/stream.test.ts',
  'test/api/audit/tampering.test.ts',
  'test/api/audit/verify.test.ts',
  'test/api/http/docs-page.test.ts',
  'test/api/http/fuzz.test.ts',
  'test/api/http/lists.test.ts',
  'test/api/http/rate-limits.test.ts',
  'test/api/http/shared-connections.test.ts',
  'test/api/idempotency/repeated-requests.test.ts',
  'test/api/import/bad-lines.test.ts',
  'test/api/import/redaction.test.ts',
  'test/api/keys/cache.test.ts',
  'test/api/members/members-and-quotas.test.ts',
  'test/api/quotas/counters.test.ts',
  'test/api/quotas/limits.test.ts',
  'test/api/sandboxes/batched-lookups.test.ts',
  'test/api/sandboxes/lifecycle.test.ts',
  'test/api/sandboxes/logs.test.ts',
  'test/api/sandboxes/queued-starts.test.ts',
  'test/api/sandboxes/stalled-sandboxes.test.ts',
  'test/api/sandboxes/state-table.test.ts',
  'test/api/sandboxes/updates.test.ts',
  'test/api/sandboxes/workers.test.ts',
  'test/api/usage/labels.test.ts',
  'test/api/usage/slow-readers.test.ts',
  'test/api/usage/storage-cost.test.ts',
  'test/api/usage/streamed-reports.test.ts',
  'test/api/volumes/file-content.test.ts',
  'test/api/volumes/planted-links.test.ts',
  'test/api/volumes/size-samples.test.ts',
  'test/api/webhooks/address-check.test.ts',
  'test/api/webhooks/concurrency-limits.test.ts',
  'test/api/webhooks/deliveries.test.ts',
  'test/api/webhooks/failing-receivers.test.ts',
  'test/api/webhooks/interruptions.test.ts',
  'test/api/webhooks/secret-keys.test.ts',
];

/** The tests of a minute: units and the API. */
export default defineConfig({
  test: {
    ...config.test,
    include: ['test/unit/**/*.test.ts', 'test/api/**/*.test.ts'],
    exclude: [...configDefaults.exclude, ...SLOW],
  },
});
