import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest';
import type { Client } from '../support/client.js';
import { startTestService, type TestService } from '../support/service.js';
import { launch, newVisitor, type Visitor } from './browser.js';

type ServiceOptions = Parameters<typeof startTestService>[0];

interface ConsoleTest {
  service: TestService;
  /** Each test has a new organization. */
  client: Client;
  visitor: Visitor;
}

/** A service and a browser for the tests of a suite. A fault of a script or of the policy fails the test. */
export function useConsole(options?: ServiceOptions): ConsoleTest {
  const test = {} as ConsoleTest;
  let browser: Browser;
  beforeAll(async () => {
    test.service = await startTestService(options);
    browser = await launch();
  });
  afterAll(async () => {
    await browser.close();
    await test.service.close();
  });
  beforeEach(async () => {
    test.client = await test.service.newOrg();
    test.visitor = await newVisitor(browser, test.service.url);
  });
  afterEach(async () => {
    expect(test.visitor.faults).toEqual([]);
    await test.visitor.context.close();
  });
  return test;
}
