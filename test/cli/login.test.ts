import { existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { expectRefused, PROGRAM, run, runJson, start } from '../support/cli.js';
import type { Client } from '../support/client.js';
import type { ConsoleSession } from '../support/console.js';
import { newMember, signInMember } from '../support/members.js';
import { until } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

let service: TestService;
let client: Client;
let session: ConsoleSession;
let home: string;
let env: Record<string, string>;

beforeAll(async () => {
  service = await startTestService({ worker: false });
  client = await service.newOrg();
});
afterAll(() => service.close());
beforeEach(async () => {
  const member = await newMember(service, client.org.id, 'admin');
  session = await signInMember(service, client.org.id, member);
  home = mkdtempSync(join(tmpdir(), 'sandkeep-login-'));
  env = { HOME: home, XDG_CONFIG_HOME: '' };
});
afterEach(() => rmSync(home, { recursive: true }));

/** Begins a login, and answers its code in the console. */
async function login(allow: boolean) {
  const begun = start([...PROGRAM, 'login', '--url', service.url], { env });
  let told = '';
  begun.child.stderr.on('data', (chunk: Buffer) => (told += chunk.toString()));
  const code = await until(
    () => Promise.resolve(/confirm the code (\S+),/.exec(told)?.[1]),
    (found) => found !== undefined,
  );
  const { status } = await session.fetch(`/console/device/codes/${code}`, {
    method: 'POST',
    body: JSON.stringify({ allow }),
  });
  expect(status).toBe(204);
  return begun.ended;
}

test('a login lets the other commands act as the member, and a logout ends its token', async () => {
  const ended = await login(true);
  expect(ended.code, ended.err).toBe(0);
  expect(ended.out).toMatch(
    new RegExp(`^signed in to the organization "${client.org.slug}" \\(admin\\), until \\d{4}-\\S+\n$`),
  );
  const file = join(home, '.config', 'sandkeep', 'login.json');
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(await runJson(['pools', 'list'], { env })).toEqual([]);
  const elsewhere = await run(['pools', 'list', '--url', 'http://127.0.0.1:9'], { env });
  expectRefused(elsewhere, `the login is for ${service.url}`);
  const { body } = await client.get('/v1/tokens');
  expect(body.data).toMatchObject([{ name: expect.stringMatching(/^sandkeep on /) }]);
  const out = await run(['logout'], { env });
  expect(out).toEqual({ code: 0, out: `signed out of ${service.url}\n`, err: '' });
  expect(existsSync(file)).toBe(false);
  expect((await client.get('/v1/tokens')).body.data).toEqual([]);
  expectRefused(await run(['logout'], { env }), 'there is no login here');
  expectRefused(await run(['pools', 'list'], { env }), 'no API key');
});

test('a login that the member refuses leaves nothing', async () => {
  const { code, err } = await login(false);
  expect([code, err]).toEqual([1, expect.stringContaining('refused in the console')]);
  expect(existsSync(join(home, '.config'))).toBe(false);
});

test('a login explains a service that does not answer, and one without a console', async () => {
  expectRefused(await run(['login', '--url', 'http://127.0.0.1:9'], { env }), 'cannot reach the service');
  expectRefused(await run(['login', '--url', 'nowhere'], { env }), 'is no address of a service');
});
