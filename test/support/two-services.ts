import { afterAll, beforeAll, beforeEach } from 'vitest';
import type { Client } from './client.js';
import { until } from './polling.js';
import { startTestService, type TestService } from './service.js';

interface TwoServices {
  first: TestService;
  /** Another process on the same database. */
  second: TestService;
  /** A client of the first, for the whole file. */
  client: Client;
}

/** Two services for the tests of a file. Each test begins when both hear of changes. */
export function useTwoServices(): TwoServices {
  const test = {} as TwoServices;
  beforeAll(async () => {
    test.first = await startTestService({ worker: false });
    test.second = await startTestService({ worker: false, beside: test.first });
    test.client = await test.first.newOrg();
  });
  afterAll(async () => {
    await test.second.close();
    await test.first.close();
  });
  beforeEach(async () => {
    await until(
      async () => Promise.resolve(test.first.ctx.changes.live && test.second.ctx.changes.live),
      (live) => live,
    );
  });
  return test;
}
