import { afterAll, beforeAll, expect, test } from 'vitest';
import { addPasskey, Authenticator, signInWith } from '../support/authenticator.js';
import { expectRefused, run, runJson, urlOf, UUID } from '../support/cli.js';
import type { Client } from '../support/client.js';
import { sessionAt } from '../support/console.js';
import { newMember, signInMember } from '../support/members.js';
import { startTestService, type TestService } from '../support/service.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  client = await service.newOrg();
});
afterAll(() => service.close());

const about = (command: string, email: string, ...args: string[]) => [
  'member',
  command,
  email,
  '--org',
  client.org.slug,
  ...args,
];
const env = () => ({ DATABASE_URL: urlOf(service.database) });

test('the operator lists the passkeys of a member, and removes lost ones', async () => {
  const url = service.url.replace('127.0.0.1', 'localhost');
  const member = await newMember(service, client.org.id, 'owner');
  const { email } = member;
  const session = sessionAt(url, await signInMember(service, client.org.id, member));
  const [phone, laptop] = [new Authenticator(url), new Authenticator(url)];
  await addPasskey(session, phone, { name: 'phone' });
  await addPasskey(session, laptop, { name: 'laptop' });
  const list = await runJson(about('passkeys', email), { env: env() });
  const fields = { id: expect.stringMatching(UUID), created_at: expect.any(String), used_at: null };
  expect(list).toEqual([
    { ...fields, name: 'phone' },
    { ...fields, name: 'laptop' },
  ]);
  const one = await run(about('remove-passkeys', email, '--id', list[0].id), { env: env() });
  expect(one.out).toContain(`removed "phone"\n\n"sandkeep member link --org ${client.org.slug} ${email}"`);
  expect((await signInWith(url, phone)).status).toBe(401);
  expect((await signInWith(url, laptop)).status).toBe(201);
  expectRefused(
    await run(about('remove-passkeys', email, '--id', list[0].id), { env: env() }),
    'no such passkey',
  );
  expect((await run(about('passkeys', email), { env: env() })).out).toMatch(/laptop/);
  const rest = await runJson(about('remove-passkeys', email), { env: env() });
  expect(rest).toEqual([{ id: list[1].id, name: 'laptop' }]);
  expect((await signInWith(url, laptop)).status).toBe(401);
  expect((await run(about('remove-passkeys', email), { env: env() })).out).toBe(`${email} has no passkey\n`);
});

test('an unknown member, and what is no id, are refused', async () => {
  expectRefused(await run(about('passkeys', 'nobody@example.com'), { env: env() }), 'is not a member');
  expectRefused(await run(about('remove-passkeys', 'nobody@example.com'), { env: env() }), 'is not a member');
  expectRefused(
    await run(about('remove-passkeys', 'nobody@example.com', '--id', 'x'), { env: env() }),
    'is not the id of a passkey',
  );
});
