import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { leafOf, linkOf, genesisLink } from '../../../src/audit/events/hash-chain.js';
import { recordEvent } from '../../../src/audit/events/record.js';
import { sealEvents } from '../../../src/audit/log/seal.js';
import { SeenHeads } from '../../../src/audit/log/seen-heads.js';
import { openEventKeys, rotateEventKey } from '../../../src/audit/log/signing-key.js';
import { BrokenLog } from '../../../src/audit/log/verify-head.js';
import type { KnownPosition } from '../../../src/audit/verify/reference-logs.js';
import { verifyStore } from '../../../src/audit/verify/verify-store.js';
import { expectRefused, run, urlOf } from '../../support/cli.js';
import type { Client } from '../../support/client.js';
import { tamper, wholeLog } from '../../support/event-log.js';
import { startTestService, type TestService } from '../../support/service.js';

/** This service seals only on request. */
let service: TestService;
let folder: string;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  folder = mkdtempSync(join(tmpdir(), 'sandkeep-tampering-'));
});
afterAll(async () => {
  await service.close();
  rmSync(folder, { recursive: true, force: true });
});

const never = new AbortController().signal;
/** Seals, and returns the reason why the sealer could not append to the log of this organization. */
const seal = async (org: string, ctx = service.ctx) =>
  (await sealEvents(ctx, never)).filter(({ orgId }) => orgId === org).map(({ error }) => error);
const hex = (bytes: Buffer) => `'\\x${bytes.toString('hex')}'`;

/** A process on another machine, which remembers no heads. */
const elsewhere = () => ({ ...service.ctx, seenHeads: new SeenHeads(join(folder, 'nothing')) });

async function* only(place: KnownPosition): AsyncGenerator<KnownPosition> {
  yield await Promise.resolve(place);
}

/** Verifies on the machine of the service, or with the keys alone. */
function verify({ org }: Client, here = true) {
  const head = here ? service.ctx.seenHeads.get(org.id) : undefined;
  const references = head ? [{ name: 'event-heads', positions: only(head) }] : [];
  const keys = service.ctx.eventKeys();
  return verifyStore(service.ctx.pool, org.id, { keys: keys.known }, { references, keys });
}

interface Victim {
  client: Client;
  org: string;
  id: string;
  /** The number of the entry at the first signature. */
  early: number;
}

async function victim(): Promise<Victim> {
  const client = await service.newOrg();
  await seal(client.org.id);
  const early = (await wholeLog(service.ctx.pool, client.org.id)).length;
  for (let index = 0; index < 6; index += 1) {
    expect((await client.post('/v1/volumes', { name: `volume-${index}` })).status).toBe(200);
  }
  expect(await seal(client.org.id)).toEqual([]);
  const log = await wholeLog(service.ctx.pool, client.org.id);
  expect(log.length).toBe(early + 6);
  expect(await verify(client)).toMatchObject({ wrong: null, unmarked: 0 });
  return { client, org: client.org.id, id: log[4]!.event_id, early };
}

const EVERYTHING = [
  'unsealed_events',
  'event_log',
  'event_checkpoints',
  'event_drops',
  'event_chains',
  'events',
];

type Tampering = (victim: Victim) => string[] | Promise<string[]>;

/** Rewrites the log of an organization with another payload in entry 5, as an attacker without the key does. */
async function relinked({ org, id }: Victim): Promise<string[]> {
  const statements: string[] = [];
  let link = genesisLink(org);
  for (const entry of await wholeLog(service.ctx.pool, org)) {
    if (entry.seq === 5) {
      const payload = forged(entry.event!.payload);
      entry.leaf = leafOf({ ...entry.event!, payload });
      statements.push(`update events set payload = '${JSON.stringify(payload)}' where id = '${id}'`);
    }
    link = linkOf(link, entry);
    statements.push(
      `update event_log set leaf = ${hex(entry.leaf)}, link = ${hex(link)} where org_id = '${org}' and seq = ${entry.seq}`,
    );
  }
  return [
    ...statements,
    `update events set leaf = (select leaf from event_log where event_id = events.id) where id = '${id}'`,
    `delete from event_checkpoints where org_id = '${org}'`,
    `update event_chains set link = ${hex(link)} where org_id = '${org}'`,
  ];
}

const forged = (payload: unknown) => ({ ...(payload as object), name: 'forged' });

const changed =
  (set: string): Tampering =>
  ({ id }) => [`update events set ${set} where id = '${id}'`];

const TAMPERINGS: Record<string, [Tampering, RegExp]> = {
  ...Object.fromEntries(
    [
      `id = gen_random_uuid()`,
      `occurred_at = occurred_at + interval '1 microsecond'`,
      `category = 'other'`,
      `event_type = 'other'`,
      `actor = '{"kind":"system","code":"other","label":"Other"}'`,
      `payload = '{}'`,
      `resource_id = null`,
      `actor_kind = 'user'`,
      `actor_id = 'other'`,
    ].map((set) => [`a changed event: ${set}`, [changed(set), /entry 5 \(event /]] as const),
  ),
  'an event that is gone': [
    ({ id }) => [`delete from events where id = '${id}'`],
    /the event of entry 5 .*was removed/,
  ],
  'an event that is gone with its entry': [
    ({ id }) => [`delete from events where id = '${id}'`, `delete from event_log where event_id = '${id}'`],
    /^entry 5 was removed/,
  ],
  'an event that is gone, and the others moved up': [
    ({ org, id }) => [
      `delete from events where id = '${id}'`,
      `delete from event_log where event_id = '${id}'`,
      `update event_log set seq = seq + 1000 where org_id = '${org}' and seq > 5`,
      `update event_log set seq = seq - 1001 where org_id = '${org}' and seq > 1000`,
      `update event_chains set seq = seq - 1 where org_id = '${org}'`,
    ],
    /^entry 5 .*does not follow entry 4/,
  ],
  'two events that changed places': [
    ({ org }) => [
      `update event_log set seq = seq + 1000 where org_id = '${org}' and seq in (5, 6)`,
      `update event_log set seq = case seq when 1005 then 6 else 5 end where org_id = '${org}' and seq > 1000`,
    ],
    /^entry 5 .*does not follow entry 4/,
  ],
  'an event that was put in past the queue': [
    ({ id }) => [copyOf(id)],
    /^the event 01900000-0000-7000-8000-000000000000 .*was inserted: it is not in the log/,
  ],
  'an entry that is not one of the service any more': [
    ({ id }) => [`update event_log set unmarked = true where event_id = '${id}'`],
    /^entry 5 .*does not follow entry 4/,
  ],
  'an end that was cut off': [
    ({ org }) => [
      `delete from events where id in (select event_id from event_log where org_id = '${org}' and seq > 6)`,
      `delete from event_log where org_id = '${org}' and seq > 6`,
    ],
    /^the log ends at entry 6, and was signed up to/,
  ],
  'an end that was cut off at a signed place, which is called the end': [
    ({ org, early }) => [
      `delete from events where id in (select event_id from event_log where org_id = '${org}' and seq > ${early})`,
      `delete from event_log where org_id = '${org}' and seq > ${early}`,
      `update event_chains c set seq = k.seq, link = k.link, at = k.at, key_id = k.key_id, signature = k.signature
       from event_checkpoints k where k.org_id = c.org_id and k.seq = ${early} and c.org_id = '${org}'`,
    ],
    /^the log ends at entry \d+, but event-heads has more entries/,
  ],
  'everything of an organization that is gone': [
    ({ org }) => EVERYTHING.map((table) => `delete from ${table} where org_id = '${org}'`),
    /^the log ends at entry [01], but event-heads has more entries/,
  ],
  'events that lists are kept from': [
    ({ org }) => [`delete from event_months where org_id = '${org}' and event_type = 'api_key_created'`],
    /^lists do not show the api_key_created events of \d{4}-\d\d/,
  ],
  'a history that was written anew and linked': [
    relinked,
    /entry \d+ differs from that in event-heads|has a wrong signature/,
  ],
  'a history that was written anew, whose end is taken away': [
    async (one) => [
      ...(await relinked(one)),
      `update event_chains set seq = 0, link = null, at = null, key_id = null, signature = null where org_id = '${one.org}'`,
    ],
    /entry \d+ differs from that in event-heads|has no signed end/,
  ],
};

function copyOf(id: string, more: { columns?: string; values?: string } = {}): string {
  const { columns = '', values = '' } = more;
  const same = 'occurred_at, category, event_type, actor, payload, actor_kind, actor_id, resource_id';
  return `insert into events (org_id, id, ${same}${columns})
    select org_id, '01900000-0000-7000-8000-000000000000', ${same}${values} from events where id = '${id}'`;
}

describe.each(Object.entries(TAMPERINGS))('%s', (_, [tampering, expected]) => {
  test('is reported, before and after the service seals further events', async () => {
    const one = await victim();
    await tamper(service.ctx.pool, ...(await tampering(one)));
    expect((await verify(one.client)).wrong).toMatch(expected);
    expect((await one.client.post('/v1/volumes', { name: 'one-more' })).status).toBe(200);
    // Seals in the process that has read the log, and in another one, whether or not they append to it.
    await seal(one.org);
    expect((await verify(one.client)).wrong).toMatch(expected);
    await seal(one.org, elsewhere());
    expect((await verify(one.client)).wrong).toMatch(expected);
  });
});

describe('verification after the loss of the machine that remembers the heads', () => {
  test('still rejects a rewritten and relinked history after later signatures', async () => {
    for (const reset of [
      '',
      `update event_chains set seq = 0, link = null, at = null, key_id = null, signature = null`,
    ]) {
      const one = await victim();
      const statements = await relinked(one);
      if (reset !== '') statements.push(`${reset} where org_id = '${one.org}'`);
      await tamper(service.ctx.pool, ...statements);
      await one.client.post('/v1/volumes', { name: 'one-more' });
      expect(await seal(one.org, elsewhere())).toEqual([expect.any(BrokenLog)]);
      expect((await verify(one.client, false)).wrong).toMatch(/was rewritten|no signed end|wrong signature/);
    }
  });

  test('still rejects a changed event after all entries are sealed again', async () => {
    const { client, org, id } = await victim();
    await tamper(
      service.ctx.pool,
      `update events set payload = '{"name":"forged"}', leaf = null where id = '${id}'`,
      ...['event_log', 'event_checkpoints', 'event_chains'].map(
        (table) => `delete from ${table} where org_id = '${org}'`,
      ),
      `insert into unsealed_events (org_id, occurred_at, event_id, event_type, category)
       select org_id, occurred_at, id, event_type, category from events where org_id = '${org}' order by occurred_at`,
    );
    expect(await seal(org, elsewhere())).toEqual([]);
    expect((await verify(client, false)).wrong).toMatch(
      new RegExp(`^entry 5 \\(event ${id} .*was inserted: it has no mark of the event keys`),
    );
  });
});

describe('an event inserted into the queue', () => {
  const leaf = `, ${hex(Buffer.alloc(32, 1))}`;
  test.each([
    ['as it is', {}],
    ['with a hash', { columns: ', leaf', values: leaf }],
    ['with the mark of another', { columns: ', leaf, mark', values: ', leaf, mark' }],
    ['with a hash and the mark of another', { columns: ', leaf, mark', values: `${leaf}, mark` }],
  ])('%s is reported, before and after it is sealed', async (_, more) => {
    const { client, org, id } = await victim();
    await service.ctx.pool.query(copyOf(id, more));
    expect((await verify(client)).wrong).toMatch(
      /^the unsealed event 01900000-0000-7000-8000-000000000000 of .* was (inserted|changed)/,
    );
    await client.post('/v1/volumes', { name: 'one-more' });
    expect(await seal(org)).toEqual([]);
    const { seq } = (await wholeLog(service.ctx.pool, org)).find(({ event_id }) =>
      event_id.startsWith('0190000'),
    )!;
    const { wrong } = await verify(client);
    expect(wrong).toMatch(
      new RegExp(`^entry ${seq} \\(event 01900000-0000-7000-8000-000000000000 of .* was (inserted|changed)`),
    );
  });

  test('passes verification once the operator names it as known', async () => {
    const { client, org, id } = await victim();
    await service.ctx.pool.query(copyOf(id));
    const trust = {
      keys: service.ctx.eventKeys().known,
      accepted: new Set(['01900000-0000-7000-8000-000000000000']),
    };
    const taken = () => verifyStore(service.ctx.pool, org, trust, { keys: service.ctx.eventKeys() });
    expect(await taken()).toMatchObject({ wrong: null, unsealed: 1 });
    await seal(org);
    expect(await taken()).toMatchObject({ wrong: null, unmarked: 1 });
    expect((await verify(client)).wrong).not.toBeNull();
  });
});

describe('the sealer', () => {
  test('names a log that it cannot append to, and continues with the other logs', async () => {
    const [broken, good] = [await victim(), await victim()];
    await tamper(
      service.ctx.pool,
      `update event_chains set signature = '\\x00' where org_id = '${broken.org}'`,
    );
    for (const { client } of [broken, good]) await client.post('/v1/volumes', { name: 'one-more' });
    expect(await seal(broken.org)).toEqual([expect.any(BrokenLog)]);
    expect(await verify(good.client)).toMatchObject({ wrong: null, unsealed: 0 });
    expect((await verify(broken.client)).wrong).toMatch(/has a wrong signature/);
  });

  test('appends events in the order of their writes, whatever their times', async () => {
    const { org } = await service.newOrg();
    const actor = operator('test');
    const write = (at: string) =>
      recordEvent(service.ctx.pool, {
        orgId: org.id,
        type: 'quota_changed' as const,
        actor,
        resourceId: null,
        at,
        payload: { before: {}, after: {} },
      });
    const ids = [await write('2030-01-01T00:00:00.000002Z'), await write('2030-01-01T00:00:00.000001Z')];
    await seal(org.id);
    const log = await wholeLog(service.ctx.pool, org.id);
    expect(log.slice(-2).map(({ event_id }) => event_id)).toEqual(ids);
  });

  test('accepts events marked under the previous key, but not under the key before that', async () => {
    const { client, org } = await victim();
    const file = join(service.directory, 'event-keys');
    await client.post('/v1/volumes', { name: 'under-the-key-before' });
    rotateEventKey(file);
    expect(await seal(org)).toEqual([]);
    expect(await verify(client)).toMatchObject({ wrong: null, unmarked: 0 });
    await client.post('/v1/volumes', { name: 'under-one-before-that' });
    rotateEventKey(file);
    rotateEventKey(file);
    expect(await seal(org)).toEqual([]);
    expect((await verify(client)).wrong).toMatch(/was inserted: it has no mark of the event keys/);
  });

  test('signs nothing in a log signed under keys that it does not know', async () => {
    const { client } = await victim();
    await client.post('/v1/volumes', { name: 'one-more' });
    const eventKeys = openEventKeys({ file: join(folder, 'other-keys') });
    await expect(seal(client.org.id, { ...elsewhere(), eventKeys })).rejects.toThrow(BrokenLog);
    expect(await verify(client)).toMatchObject({ wrong: null, unsealed: 1 });
  });
});

describe('sandkeep events verify', () => {
  const command = (...more: string[]) =>
    run(['events', 'verify', '--database-url', urlOf(service.database), ...more]);

  test('compares with the heads of this machine, also for organizations that are gone', async () => {
    const one = await victim();
    await service.ctx.seenHeads.write({ now: true });
    const here = ['--data-dir', service.directory, '--org', one.client.org.slug];
    expect((await command(...here)).out).toContain(': in order: ');
    await tamper(
      service.ctx.pool,
      ...(await TAMPERINGS['an end that was cut off at a signed place, which is called the end']![0](one)),
    );
    const { code, out } = await command(...here);
    expect({ code, out }).toMatchObject({
      code: 1,
      out: expect.stringMatching(
        /TAMPERED WITH: the log ends at entry \d+, but .*event-heads has more entries/,
      ),
    });
  });

  test('compares with an export, and names the first entry that differs, even under a valid signature', async () => {
    const { client, org, id } = await victim();
    const file = join(folder, 'exported.ndjson');
    writeFileSync(file, (await client.request('GET', '/v1/events/export', {})).text);
    const here = ['--data-dir', service.directory, '--org', client.org.slug, '--against', file];
    await seal(org);
    const good = await command(...here);
    expect(good).toMatchObject({ code: 0, out: expect.stringContaining(': in order: ') });
    // An attacker who has the key.
    const { event } = (await wholeLog(service.ctx.pool, org))[4]!;
    const payload = forged(event!.payload);
    const leaf = leafOf({ ...event!, payload });
    await tamper(
      service.ctx.pool,
      `update events set payload = '${JSON.stringify(payload)}', leaf = ${hex(leaf)}, mark = ${hex(service.ctx.eventKeys().mark(leaf))} where id = '${id}'`,
      `insert into unsealed_events (org_id, occurred_at, event_id, event_type, category)
       select org_id, e.occurred_at, id, event_type, category from events e join event_log l using (org_id)
       where org_id = '${org}' and l.event_id = e.id order by seq`,
      ...['event_log', 'event_checkpoints', 'event_chains'].map(
        (table) => `delete from ${table} where org_id = '${org}'`,
      ),
    );
    expect(await seal(org, elsewhere())).toEqual([]);
    expect((await verify(client, false)).wrong).toBeNull();
    const { code, out } = await command(...here);
    expect({ code, out }).toMatchObject({
      code: 1,
      out: expect.stringContaining(`entry 5 differs from that in ${file}`),
    });
  });

  test('reports events that wait for a sealer', async () => {
    const { client, org } = await victim();
    await client.post('/v1/volumes', { name: 'one-more' });
    await tamper(
      service.ctx.pool,
      `update unsealed_events set queued_at = queued_at - interval '2 minutes' where org_id = '${org}'`,
    );
    const { code, out } = await command('--data-dir', service.directory, '--org', client.org.slug);
    expect({ code, out }).toMatchObject({
      code: 1,
      out: expect.stringMatching(/: NOT COMPLETE: the event .* has waited for the sealer since /),
    });
  });

  test('names events of a command that ran without keys, after that command warned about it', async () => {
    const { client, org } = await victim();
    const exported = [
      'events',
      'export',
      '--database-url',
      urlOf(service.database),
      '--org',
      client.org.slug,
    ];
    const { code, err } = await run([...exported, '--data-dir', join(folder, 'empty')]);
    expect({ code, err }).toMatchObject({
      code: 0,
      err: expect.stringContaining('does not have the event keys of the service'),
    });
    expect(existsSync(join(folder, 'empty'))).toBe(false);
    await seal(org);
    const { out } = await command('--data-dir', service.directory, '--org', client.org.slug);
    expect(out).toMatch(/TAMPERED WITH: entry \d+ .* was inserted: it has no mark of the event keys/);
  });

  test('creates no key, and names a key that it does not know', async () => {
    const { client } = await victim();
    const nowhere = join(folder, 'nowhere');
    expectRefused(await command('--data-dir', nowhere), 'there is no key in');
    expect(existsSync(nowhere)).toBe(false);
    const other = openEventKeys({ file: join(folder, 'unknown-keys') })().current.bytes.toString('base64');
    const { code, out } = await command(
      '--data-dir',
      nowhere,
      '--public-key',
      other,
      '--org',
      client.org.slug,
    );
    expect({ code, out }).toMatchObject({
      code: 1,
      out: expect.stringContaining(': SIGNED BY AN UNKNOWN KEY: '),
    });
  });

  test('accepts the parts of an exported log only in order and without a gap', async () => {
    const { client } = await victim();
    const [whole, first, rest, later] = ['whole', 'first', 'rest', 'later'].map((name) =>
      join(folder, name),
    ) as [string, string, string, string];
    const exported = async (query: Record<string, string> = {}) =>
      (await client.request('GET', '/v1/events/export', { query })).text;
    writeFileSync(first, await exported());
    const end = (await wholeLog(service.ctx.pool, client.org.id)).length;
    await client.post('/v1/volumes', { name: 'one-more' });
    await seal(client.org.id);
    writeFileSync(rest, await exported({ after_seq: String(end) }));
    writeFileSync(later, await exported({ after_seq: String(end + 1) }));
    writeFileSync(whole, await exported());
    const files = (...names: string[]) => [
      ...names.flatMap((name) => ['--file', name]),
      '--data-dir',
      service.directory,
    ];
    expect((await run(['events', 'verify', ...files(whole)])).code).toBe(0);
    expect((await run(['events', 'verify', ...files(first, rest)])).code).toBe(0);
    const { code, out } = await run(['events', 'verify', ...files(first, later)]);
    expect({ code, out }).toMatchObject({ code: 1, out: expect.stringContaining('does not go on where') });
  });
});
