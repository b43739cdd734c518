import { configDefaults, defineConfig } from 'vitest/config';
import config from './vitest.config.js';

/** Files that take more than eight seconds, or start the built program or a browser. */
const SLOW = [
  'test/api/audit/events-{concurrency,cursors,export,keys,long,migration,partitions,parts}.test.ts',
  'test/api/audit/events-{retention,stolen-key,stream,tampering,verify}.test.ts',
  'test/api/http/{docs-page,fuzz,held-up,rate-limits,reads}.test.ts',
  'test/api/keys/keys-cache.test.ts',
  'test/api/members/members.test.ts',
  'test/api/quotas/{quota-counts,quotas}.test.ts',
  'test/api/sandboxes/{logs,plans,sandboxes-show,state,waiting,workers}.test.ts',
  'test/api/usage/{storage-cost,usage-readers,usage-stream}.test.ts',
  'test/api/volumes/{volume-files-planted,volume-samples}.test.ts',
  'test/api/webhooks/*.test.ts',
  'test/unit/log.test.ts',
];

/** The tests of a minute: units and the API, on the sources as they are. */
export default defineConfig({
  test: {
    ...config.test,
    include: ['test/unit/**/*.test.ts', 'test/api/**/*.test.ts'],
    exclude: [...configDefaults.exclude, ...SLOW],
  },
});
