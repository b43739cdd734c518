import { afterAll, beforeAll, expect, test } from 'vitest';
import { expectRefused, run, runJson } from '../support/cli.js';
import type { Client } from '../support/client.js';
import { startTestService, type TestService } from '../support/service.js';

let service: TestService;
let client: Client;
let env: Record<string, string>;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  client = await service.newOrg();
  env = { SANDKEEP_URL: service.url, SANDKEEP_API_KEY: client.key };
});
afterAll(() => service.close());

const budgets = (...args: string[]) => run(['budgets', ...args], { env });
const budgetsJson = (...args: string[]) => runJson(['budgets', ...args], { env });
const HOURS = ['--measure', 'vcpu_hours'];

test('sandkeep budgets creates, shows, changes, lists and deletes budgets', async () => {
  expect((await budgets('list')).out).toBe('no budgets\n');
  const label = ['--label', 'team=a=b', '--thresholds', '90,50', '--action', 'stop'];
  const made = await budgetsJson('set', 'ml', '--limit', '100', ...HOURS, ...label);
  expect(made).toMatchObject({
    name: 'ml',
    scope: {
      type: 'label',
      key: 'team',
      value: 'a=b',
    },
    measure: 'vcpu_hours',
    limit: '100',
    thresholds: [50, 90],
    action: 'stop',
  });
  const changed = await budgetsJson('set', 'ml', '--limit', '200.5');
  expect(changed).toMatchObject({ id: made.id, limit: '200.5', thresholds: [50, 90], action: 'stop' });
  await budgets('set', 'key', '--limit', '1', ...HOURS, '--api-key', client.keyId);
  await budgets('set', 'all', '--limit', '1', '--measure', 'sandbox_hours');
  const names = (await budgetsJson('list')).map(({ name }: { name: string }) => name);
  expect(names).toEqual(['all', 'key', 'ml']);
  const { out } = await budgets('show', 'ml', '--wide');
  for (const word of ['team=a=b', '200.5', 'vcpu_hours', '0 %', 'stop', 'ok']) expect(out).toContain(word);
  expect((await budgets('delete', 'ml')).out).toBe('budget deleted\n');
  expectRefused(await budgets('show', 'ml'), 'there is no budget "ml"');
});

test('sandkeep budgets names what is wrong', async () => {
  expectRefused(await budgets('set', 'x'), 'a new budget needs a limit');
  expectRefused(await budgets('set', 'x', '--limit', '1'), 'no price book');
  expectRefused(await budgets('set', 'x', '--limit', '1', ...HOURS, '--label', '=a'), 'like team=ml');
  expectRefused(
    await budgets('set', 'x', '--limit', '1', ...HOURS, '--thresholds', '5 0'),
    'such as 50,80,100',
  );
  expectRefused(await budgets('set', 'x', '--limit', '0', ...HOURS), 'limit must be above 0');
  const both = ['--label', 'a=b', '--api-key', client.keyId];
  expectRefused(await budgets('set', 'x', '--limit', '1', ...HOURS, ...both), 'not both');
  await budgets('set', 'kept', '--limit', '1', ...HOURS);
  expectRefused(await budgets('set', 'kept', '--label', 'a=b'), 'keeps its scope and its measure');
});
