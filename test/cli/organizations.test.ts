import { afterAll, beforeAll, expect, test } from 'vitest';
import { expectRefused, run, runJson } from '../support/cli.js';
import type { Client } from '../support/client.js';
import { linkPerson, newMember, newToken } from '../support/members.js';
import { startTestService, type TestService } from '../support/service.js';

let service: TestService;
let home: Client;
let other: Client;
let env: Record<string, string>;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  [home, other] = [await service.newOrg(), await service.newOrg()];
  const person = [
    await newMember(service, home.org.id, 'admin'),
    await newMember(service, other.org.id, 'admin'),
  ] as const;
  await linkPerson(service, person);
  const { secret } = await newToken(service, home.org.id, person[0]);
  env = { SANDKEEP_URL: `${service.url}/`, SANDKEEP_API_KEY: secret };
});
afterAll(() => service.close());

const namesIn = async (...args: string[]) =>
  (await runJson(['budgets', 'list', ...args], { env })).map(({ name }: { name: string }) => name);

test('--org chooses the organization of a token of a person in several ones', async () => {
  const limit = ['--limit', '1', '--measure', 'vcpu_hours'];
  await runJson(['budgets', 'set', 'there', ...limit, '--org', other.org.slug], { env });
  await runJson(['budgets', 'set', 'at-home', ...limit], { env });
  expect(await namesIn('--org', other.org.slug)).toEqual(['there']);
  expect(await namesIn('--org', home.org.slug)).toEqual(['at-home']);
  expect(await namesIn()).toEqual(['at-home']);
  expect((await other.get('/v1/budgets')).body.data).toMatchObject([{ name: 'there' }]);
});

test('--org lists the organizations of the token when it names another one', async () => {
  const strange = await service.newOrg();
  const list = (...args: string[]) => run(['budgets', 'list', ...args], { env });
  const own = [home.org.slug, other.org.slug].toSorted().join(', ');
  for (const slug of [strange.org.slug, 'no-such-organization']) {
    expectRefused(await list('--org', slug), `it opens ${own}`);
  }
  for (const slug of ['..', 'a/b', 'A', '']) {
    expectRefused(await list('--org', slug), '--org must be a slug');
  }
  const url = `${service.url}/v1/orgs/${other.org.slug}`;
  expect(await namesIn('--url', url)).toEqual(['there']);
  expectRefused(await list('--url', url, '--org', home.org.slug), 'leave out --org');
});
