import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { runRow, whyMissing } from '../support/clients.js';
import { linkPerson, newMember, newToken } from '../support/members.js';
import { startTestService, type TestService } from '../support/service.js';

const LIST = 'print(*sorted([s.name for s in (await Sandbox.list()).sandboxes]), flush=True)';

/** Each client lists the names of all sandboxes, one way or the other. */
const CLIENTS = [
  { client: 'cli', create: (name: string) => `create busybox --name ${name}`, list: 'ls -q' },
  { client: 'newest-cli', create: (name: string) => `create busybox --name ${name}`, list: 'ls -q' },
  {
    client: 'node',
    create: (name: string) => `await Sandbox.builder("${name}").image("busybox").create();`,
    list: 'console.log((await Sandbox.list()).sandboxes.map(({ name }) => name).join(" "));',
  },
  {
    client: 'python',
    create: (name: string) => `await Sandbox.create("${name}", image="busybox")`,
    list: LIST,
  },
] as const;

describe('the official clients with a personal token', () => {
  let service: TestService;
  let home: string;
  const orgs: Client[] = [];
  let strange: Client;
  let token: string;

  beforeAll(async () => {
    home = mkdtempSync(join(tmpdir(), 'sandkeep-clients-'));
    service = await startTestService({ simulated: { startMs: 5, stopMs: 5 } });
    orgs.push(await service.newOrg(), await service.newOrg());
    strange = await service.newOrg();
    const members = await Promise.all(orgs.map(({ org }) => newMember(service, org.id, 'developer')));
    await linkPerson(service, members);
    token = (await newToken(service, orgs[0]!.org.id, members[0]!)).secret;
  });
  afterAll(async () => {
    await service.close();
    rmSync(home, { recursive: true });
  });

  const at = (url: string) => ({ MSB_BACKEND: 'cloud', MSB_API_URL: url, MSB_API_KEY: token, HOME: home });
  const addressOf = ({ org }: Client) => `${service.url}/v1/orgs/${org.slug}`;

  for (const { client, create, list } of CLIENTS) {
    const reason = whyMissing(client);
    if (reason !== undefined) {
      test.skip(`${client} — SKIPPED: ${reason}`);
      continue;
    }
    test(`${client}: reaches each organization of the person by its address, and no other`, async () => {
      const run = (text: string, url: string) =>
        runRow({ client, run: text } as Parameters<typeof runRow>[0], at(url));
      for (const [index, org] of orgs.entries()) {
        const made = await run(create(`${client}-in-${index}`), addressOf(org));
        expect([made.exit, made.text]).toEqual([0, expect.any(String)]);
      }
      for (const [index, org] of orgs.entries()) {
        const { exit, text } = await run(list, addressOf(org));
        expect([exit, text]).toEqual([0, expect.stringContaining(`${client}-in-${index}`)]);
        expect(text).not.toContain(`${client}-in-${1 - index}`);
        expect((await org.get(`/v1/sandboxes/by-name/${client}-in-${index}`)).status).toBe(200);
      }
      // Without the prefix it is the organization of the token.
      expect((await run(list, service.url)).text).toContain(`${client}-in-0`);
      for (const url of [addressOf(strange), `${service.url}/v1/orgs/none`]) {
        const { exit, text } = await run(list, url);
        expect([exit === 0, text]).toEqual([false, expect.stringMatching(/not found|does not exist|404/i)]);
      }
    });
  }

  const missing = whyMissing('newest-cli');
  test.skipIf(missing !== undefined)('have no command for a login', async () => {
    const { exit, text } = await runRow(
      { client: 'newest-cli', run: 'login' } as Parameters<typeof runRow>[0],
      at(service.url),
    );
    expect(exit).not.toBe(0);
    expect(text).toMatch(/unrecognized subcommand|unexpected argument|invalid/i);
  });
});
