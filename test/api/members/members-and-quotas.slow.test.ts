import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { addMember } from '../../../src/members/add.js';
import { removeMember } from '../../../src/members/remove.js';
import { parseQuotas } from '../../../src/quotas/set.js';
import { expectRefused, run, runJson, urlOf, UUID } from '../../support/cli.js';
import type { Client } from '../../support/client.js';
import { byOperator, postLink } from '../../support/members.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
let env: { DATABASE_URL: string };
beforeAll(async () => {
  service = await startTestService({ worker: false });
  client = await service.newOrg();
  env = { DATABASE_URL: urlOf(service.database) };
});
afterAll(() => service.close());

const cli = (...args: string[]) => run(args, { env });
const json = (...args: string[]) => runJson(args, { env });

test('a key opens its organization as an owner', async () => {
  const { status, body } = await client.get('/v1/me/org');
  expect([status, body]).toEqual([
    200,
    {
      ...client.org,
      mfa_required: false,
      role: 'owner',
      runtime: 'simulated',
      created_at: body.created_at,
      updated_at: body.created_at,
    },
  ]);
});

describe('members', () => {
  test('are added, listed and removed, and the audit trail shows no address', async () => {
    const org = client.org.slug;
    const email = 'Alice.Archer@example.com';
    const added = await json(
      'member',
      'add',
      '--org',
      org,
      '--email',
      email,
      '--name',
      'Alice',
      '--role',
      'admin',
    );
    expect(added).toEqual({
      id: expect.stringMatching(UUID),
      user_id: expect.stringMatching(UUID),
      email,
      role: 'admin',
      labels: {},
      display_name: 'Alice',
      avatar_url: null,
      joined_at: added.joined_at,
    });
    expect((await client.get('/v1/members')).body).toEqual({
      data: [added],
      has_more: false,
      next_cursor: null,
    });
    expect(await json('member', 'list', '--org', org)).toEqual([added]);
    expect((await cli('member', 'list', '--org', org)).out).toMatch(
      /^E-MAIL +ROLE +ONLY +NAME +SINCE\nAlice\.Archer@example\.com +admin +Alice +\d{4}-/,
    );

    // An address in another letter case is the same address.
    const again = await cli('member', 'add', '--org', org, '--email', email.toLowerCase());
    expectRefused(again, 'is a member already');
    const removed = await cli('member', 'remove', '--org', org, email.toUpperCase());
    expect(removed).toEqual({ code: 0, out: `${email} is no longer a member\n`, err: '' });
    expectRefused(await cli('member', 'remove', '--org', org, email), 'is not a member');
    expect((await client.get('/v1/members')).body.data).toEqual([]);

    const events = await client.get('/v1/events', { category: 'member' });
    const payload = {
      member_id: added.id,
      user_id: added.user_id,
      redacted_email: 'A***r@e***.com',
      role: 'admin',
      labels: {},
    };
    expect(events.body.data.map((event: any) => [event.event_type, event.payload])).toEqual([
      ['member_removed', payload],
      ['member_added', payload],
    ]);
    expect(events.text.toLowerCase()).not.toContain('alice');
  });

  test.each([
    ['nobody', null, 'e-mail address'],
    ['a b@example.com', null, 'e-mail address'],
    ['a\0@example.com', null, 'e-mail address'],
    ['a**b@example.com', null, 'e-mail address'],
    [`${'x'.repeat(250)}@example.com`, null, 'e-mail address'],
    ['a@example.com', ' ', 'name of a member'],
    ['a@example.com', 'x'.repeat(201), 'name of a member'],
    ['a@example.com', 'a\0', 'name of a member'],
  ])('%j named %j are refused', async (email, displayName, sentence) => {
    const adding = addMember(
      service.ctx.pool,
      client.org.id,
      { email, role: 'member', displayName },
      operator('test'),
    );
    await expect(adding).rejects.toThrow(sentence);
  });

  test('with an unknown role are refused', async () => {
    const args = ['--org', client.org.slug, '--email', 'a@example.com', '--role', 'king'];
    expectRefused(
      await cli('member', 'add', ...args),
      /owner, admin, developer, member, viewer, finance, auditor/,
    );
  });

  test('have a role and limits that can be changed, except those of the last owner', async () => {
    const mine = await service.newOrg();
    const org = ['--org', mine.org.slug];
    await json('member', 'add', ...org, '--email', 'one@example.com', '--role', 'owner');
    expectRefused(await cli('member', 'remove', ...org, 'one@example.com'), 'is the last owner');
    expectRefused(
      await cli('member', 'change', 'one@example.com', ...org, '--role', 'admin'),
      'is the last owner',
    );
    await json('member', 'add', ...org, '--email', 'two@example.com', '--role', 'owner');
    const narrowed = ['--role', 'developer', '--label', 'team=ml'];
    const changed = await json('member', 'change', 'ONE@example.com', ...org, ...narrowed);
    expect(changed).toMatchObject({ email: 'one@example.com', role: 'developer', labels: { team: 'ml' } });
    expect((await cli('member', 'list', ...org)).out).toMatch(/one@example\.com +developer +team=ml/);
    expectRefused(
      await cli('member', 'change', 'one@example.com', ...org, '--role', 'finance'),
      'the role "finance" cannot be limited to labels',
    );
    expectRefused(
      await cli('member', 'add', ...org, '--email', 'three@example.com', '--label', 'service.x=1'),
      'reserved',
    );
    const open = await cli('member', 'change', 'one@example.com', ...org, '--no-labels', '--role', 'finance');
    expect(open.out).toBe('one@example.com has the role finance\n');
    expectRefused(await cli('member', 'change', 'one@example.com', ...org), 'nothing to change');
    expectRefused(
      await cli('member', 'change', 'x@example.com', ...org, '--role', 'admin'),
      'is not a member',
    );
    const { body, text } = await mine.get('/v1/events', { event_type: 'member_changed' });
    expect(body.data.map(({ payload }: any) => [payload.previous_role, payload.role])).toEqual([
      ['developer', 'finance'],
      ['owner', 'developer'],
    ]);
    expect(text).not.toContain('one@');
  });

  test('always keep an owner, when two owners are removed at once', async () => {
    const mine = await service.newOrg();
    const actor = operator('test');
    const emails = ['a@example.com', 'b@example.com', 'c@example.com'];
    for (const email of emails) {
      await addMember(service.ctx.pool, mine.org.id, { email, role: 'owner', displayName: null }, actor);
    }
    const removals = await Promise.allSettled(
      emails.map((email) => removeMember(service.ctx.pool, mine.org.id, { email }, byOperator())),
    );
    expect(removals.filter(({ status }) => status === 'fulfilled').length).toBe(2);
    expect((await mine.get('/v1/members')).body.data.length).toBe(1);
  });

  test('sign in by a link that the operator makes', async () => {
    const mine = await service.newOrg();
    const org = ['--org', mine.org.slug];
    await json('member', 'add', ...org, '--email', 'one@example.com', '--role', 'finance');
    const more = ['--public-url', service.url, '--minutes', '5'];
    const made = await json('member', 'link', 'one@example.com', ...org, ...more);
    expect(made.link).toMatch(new RegExp(`^${service.url}/console/sign-in#skl_[0-9A-Za-z]{43}$`));
    const answer = await postLink(service.url, new URL(made.link as string).hash.slice(1));
    expect(answer.status).toBe(201);
    expect(await answer.json()).toMatchObject({ scopes: ['billing:read'], member: { role: 'finance' } });
    expectRefused(await cli('member', 'link', 'two@example.com', ...org), 'is not a member');
  });

  test('are refused for an unknown organization', async () => {
    expectRefused(await cli('member', 'list', '--org', 'nowhere'), 'no organization with the slug "nowhere"');
  });

  test('are listed page by page, each once, oldest first', async () => {
    const mine = await service.newOrg();
    const emails = Array.from({ length: 23 }, (_, index) => `person-${index}@example.com`);
    for (const email of emails) {
      const member = { email, role: 'viewer', displayName: null } as const;
      await addMember(service.ctx.pool, mine.org.id, member, operator('test'));
    }
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const { body }: { body: any } = await mine.get('/v1/members', {
        limit: 5,
        ...(cursor === null ? {} : { cursor }),
      });
      seen.push(...body.data.map(({ email }: any) => email));
      expect(body.has_more).toBe(body.next_cursor !== null);
      cursor = body.next_cursor;
    } while (cursor !== null);
    expect(seen).toEqual(emails);
    const { body } = await mine.get('/v1/members', { limit: 1 });
    // A cursor belongs to its organization.
    expect((await client.get('/v1/members', { cursor: body.next_cursor })).status).toBe(400);
  });
});

describe('quotas on the command line', () => {
  test('are shown and set', async () => {
    const mine = await service.newOrg();
    const org = mine.org.slug;
    expect(await json('quota', 'show', '--org', org)).toEqual((await mine.get('/v1/quotas')).body);
    expect(
      await json('quota', 'set', '--org', org, 'max_sandboxes=10', 'max_vcpus=4', 'hard_cap=true'),
    ).toEqual({
      before: { max_sandboxes: null, max_vcpus_per_sandbox: null, hard_cap: false },
      after: { max_sandboxes: 10, max_vcpus_per_sandbox: 4, hard_cap: true },
    });
    const set = await cli('quota', 'set', '--org', org, 'max_vcpus_per_sandbox=unlimited', 'hard_cap=true');
    expect(set.out).toMatch(/^QUOTA +BEFORE +NOW\nmax_vcpus_per_sandbox +4 +unlimited\n$/);
    expect((await cli('quota', 'set', '--org', org, 'max_sandboxes=10')).out).toBe('nothing has changed\n');
    expect((await cli('quota', 'show', '--org', org)).out).toMatch(/\nmax_sandboxes +10\n/);
    expect((await mine.get('/v1/quotas')).body).toMatchObject({
      max_sandboxes: 10,
      max_vcpus_per_sandbox: null,
      hard_cap: true,
    });
  });

  test.each([
    ['max_cats=1', /there is no quota "max_cats": there are max_sandboxes, .*is_suspended/],
    ['max_sandboxes', 'write max_sandboxes=VALUE'],
    ['max_sandboxes=', '"unlimited" or a whole number from 0 to 2147483647'],
    ['max_sandboxes=-1', '"unlimited" or a whole number'],
    ['max_sandboxes=1.5', '"unlimited" or a whole number'],
    ['max_sandboxes=2147483648', '"unlimited" or a whole number'],
    ['max_sandboxes=1=2', 'write max_sandboxes=VALUE'],
    ['hard_cap=1', 'hard_cap must be true or false'],
    ['is_suspended=unlimited', 'is_suspended must be true or false'],
  ])('%s is refused', (word, sentence) => {
    expect(() => parseQuotas([word])).toThrow(sentence);
  });

  test('with an invalid value change nothing', async () => {
    const args = ['--org', client.org.slug, 'max_sandboxes=1', 'max_cats=1'];
    expectRefused(await cli('quota', 'set', ...args), 'there is no quota "max_cats"');
    expect((await client.get('/v1/quotas')).body.max_sandboxes).toBeNull();
  });
});
