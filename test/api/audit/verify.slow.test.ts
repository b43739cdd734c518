import fc from 'fast-check';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { canonicalJson } from '../../../src/audit/events/canonical-json.js';
import { leafOf, linkOf, genesisLink } from '../../../src/audit/events/hash-chain.js';
import type { Checkpoint, DropRecord } from '../../../src/audit/log/checkpoint.js';
import { openEventKeys, parsePublicKey, rotateEventKey } from '../../../src/audit/log/signing-key.js';
import { formatExportLine } from '../../../src/audit/verify/export-line.js';
import { verifyFile } from '../../../src/audit/verify/verify-file.js';
import { verifyStore } from '../../../src/audit/verify/verify-store.js';
import { expectRefused, run, runJson, urlOf } from '../../support/cli.js';
import type { Client } from '../../support/client.js';
import { tamper, untilSealed, wholeLog } from '../../support/event-log.js';
import { importAll, line } from '../../support/import-lines.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => service.close());

/** An organization after this many volume creations, with all events sealed. */
async function orgWithEvents(volumes: number): Promise<Client> {
  const client = await service.newOrg();
  // The first signature lies before the end of the log.
  await untilSealed(service.ctx.pool, client.org.id);
  for (let index = 0; index < volumes; index += 1) {
    expect((await client.post('/v1/volumes', { name: `volume-${index}` })).status).toBe(200);
  }
  await untilSealed(service.ctx.pool, client.org.id);
  return client;
}

function verify(client: Client) {
  return verifyStore(service.ctx.pool, client.org.id, { keys: service.ctx.eventKeys().known });
}

async function wrongAfter(client: Client, ...statements: string[]): Promise<string | null> {
  await tamper(service.ctx.pool, ...statements);
  return (await verify(client)).wrong;
}

async function checkpointOf<Row>(table: string, orgId: string): Promise<Row[]> {
  const { rows } = await service.ctx.pool.query(
    `select * from ${table} where org_id = $1 and seq > 0 order by seq`,
    [orgId],
  );
  return rows as Row[];
}

describe('canonical JSON', () => {
  test('follows RFC 8785', () => {
    const text =
      '{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\\u20ac$\\u000F\\u000aA\'\\u0042\\u0022\\u005c\\\\\\"\\/","literals":[null,true,false]}';
    expect(canonicalJson(JSON.parse(text))).toBe(
      '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}',
    );
    const names = { '\u20ac': 1, '\r': 2, '\ufb33': 3, '1': 4, '\ud83d\ude00': 5, '\u0080': 6, '\u00f6': 7 };
    expect(canonicalJson(names)).toBe('{"\\r":2,"1":4,"\u0080":6,"ö":7,"€":1,"\ud83d\ude00":5,"\ufb33":3}');
  });

  test('is the same after a round trip through JSON text, in any member order', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        expect(canonicalJson(JSON.parse(JSON.stringify(value)))).toBe(canonicalJson(value));
        expect(JSON.parse(canonicalJson(value))).toEqual(JSON.parse(JSON.stringify(value)));
      }),
    );
    expect(canonicalJson({ b: 1, a: [undefined, { d: undefined, c: 2 }] })).toBe(
      '{"a":[null,{"c":2}],"b":1}',
    );
  });
});

describe('the log', () => {
  test('has each event once, in order of its numbers, each entry linked to the previous one', async () => {
    const client = await orgWithEvents(5);
    const log = await wholeLog(service.ctx.pool, client.org.id, 3);
    expect(log.map(({ seq }) => seq)).toEqual(log.map((_, index) => index + 1));
    const { body } = await client.get('/v1/events', { limit: 100 });
    expect(log.map(({ event_id }) => event_id).toSorted()).toEqual(
      body.data.map(({ id }: any) => id).toSorted(),
    );
    let link = genesisLink(client.org.id);
    for (const entry of log) {
      expect(entry.leaf).toEqual(leafOf(entry.event!));
      link = linkOf(link, entry);
      expect(entry.link).toEqual(link);
    }
    expect(await verify(client)).toMatchObject({ wrong: null, entries: log.length, unsealed: 0 });
  });

  test('stores resource ids in the form that the database writes', async () => {
    const client = await service.newOrg();
    const { body } = await client.post('/v1/volumes', { name: 'data' });
    expect((await client.delete(`/v1/volumes/${body.id.toUpperCase()}`)).status).toBe(200);
    await untilSealed(service.ctx.pool, client.org.id);
    expect(await verify(client)).toMatchObject({ wrong: null });
  });

  test('holds imported events exactly like events that the service wrote', async () => {
    const client = await orgWithEvents(1);
    const org = { kind: 'org', ...client.org };
    const user_id = uuidv7().toUpperCase();
    const lines = [
      line.event(org, {
        id: uuidv7().toUpperCase(),
        payload: { volume_id: uuidv7().toUpperCase(), n: [1.5, -0, 1e21] },
      }),
      line.event(org, {
        timestamp: '2026-03-01T01:30:00.1234569+05:30',
        actor: { kind: 'user', user_id, label: 'Ada', redacted_email: 'ada@example.com' },
        payload: { text: 'a\ttab, a \\ and é', big: 1234567890123456e5 },
      }),
    ];
    const { imported } = await importAll(service, lines);
    expect(imported.event).toBe(2);
    await untilSealed(service.ctx.pool, client.org.id);
    expect(await verify(client)).toMatchObject({ wrong: null, unsealed: 0, unmarked: 0 });
  });

  test('rejects updates, deletes and truncation', async () => {
    const { pool } = service.ctx;
    await orgWithEvents(1);
    for (const table of ['events', 'event_log', 'event_checkpoints', 'event_months']) {
      const refused = `is refused: audit events are only ever added`;
      await expect(pool.query(`update ${table} set org_id = org_id`)).rejects.toThrow(refused);
      await expect(pool.query(`delete from ${table}`)).rejects.toThrow(refused);
      await expect(pool.query(`truncate ${table}`)).rejects.toThrow(refused);
    }
    const month = new Date().toISOString().slice(0, 7).replace('-', '_');
    await expect(pool.query(`truncate events_${month}`)).rejects.toThrow('is refused');
    await expect(pool.query(`delete from events_${month}`)).rejects.toThrow('is refused');
  });
});

describe('verification locates', () => {
  let client: Client;
  let org: string;
  /** The entry in the middle. */
  let entry: { seq: number; event_id: string };
  const of = (table: string, id = 'event_id') =>
    `${table} where org_id = '${org}' and ${id} = '${entry.event_id}'`;

  async function fresh(): Promise<void> {
    client = await orgWithEvents(6);
    org = client.org.id;
    entry = (await wholeLog(service.ctx.pool, org))[4]!;
    expect((await verify(client)).wrong).toBeNull();
  }

  test('a changed payload', async () => {
    await fresh();
    const statement = `update events set payload = replace(payload::text, 'volume-', 'other-')::json where org_id = '${org}' and id = '${entry.event_id}'`;
    expect(await wrongAfter(client, statement)).toContain(`entry 5 (event ${entry.event_id}`);
  });

  test('a changed actor, time, category or resource', async () => {
    for (const set of [
      `actor = '{"kind":"system","code":"other","label":"Other"}'`,
      `occurred_at = occurred_at + interval '1 microsecond'`,
      `category = 'other'`,
      'resource_id = gen_random_uuid()',
    ]) {
      await fresh();
      const statement = `update events set ${set} where org_id = '${org}' and id = '${entry.event_id}'`;
      const wrong = await wrongAfter(client, statement);
      expect(wrong).toContain('entry 5 ');
      expect(wrong).toContain(entry.event_id);
    }
  });

  test('a removed event, with its entry and without', async () => {
    await fresh();
    expect(await wrongAfter(client, `delete from ${of('events', 'id')}`)).toMatch(
      /^the event of entry 5 .* was removed/,
    );
    expect(await wrongAfter(client, `delete from ${of('event_log')}`)).toBe('entry 5 was removed');
    expect(
      await wrongAfter(client, `update event_log set seq = seq - 1 where org_id = '${org}' and seq > 5`),
    ).toMatch(/^entry 5 .* does not follow entry 4/);
  });

  test('an inserted event, with an entry and without', async () => {
    await fresh();
    const copy = `insert into events (org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id)
      select org_id, '01900000-0000-7000-8000-000000000000', occurred_at, category, event_type, actor, payload, actor_kind, actor_id
      from ${of('events', 'id')}`;
    expect(await wrongAfter(client, copy)).toMatch(
      /^the event 01900000-0000-7000-8000-000000000000 of .* was inserted/,
    );
    await tamper(
      service.ctx.pool,
      `update event_log set seq = seq + 1000 where org_id = '${org}' and seq > 5`,
      `insert into event_log select org_id, 6, '01900000-0000-7000-8000-000000000000', occurred_at, leaf, unmarked, link
       from event_log where org_id = '${org}' and seq = 5`,
      `update event_log set seq = seq - 999 where org_id = '${org}' and seq > 1000`,
    );
    expect((await verify(client)).wrong).toMatch(
      /^entry 6 \(event 01900000-0000-7000-8000-000000000000 .*was changed/,
    );
  });

  test('two swapped events', async () => {
    await fresh();
    expect(
      await wrongAfter(
        client,
        `update event_log set seq = case seq when 5 then 1005 else 1006 end where org_id = '${org}' and seq in (5, 6)`,
        `update event_log set seq = case seq when 1005 then 6 else 5 end where org_id = '${org}' and seq > 1000`,
      ),
    ).toMatch(/^entry 5 .* does not follow entry 4/);
  });

  test('a truncated end', async () => {
    await fresh();
    await tamper(
      service.ctx.pool,
      `delete from events where org_id = '${org}' and id in (select event_id from event_log where org_id = '${org}' and seq >= 7)`,
      `delete from event_log where org_id = '${org}' and seq >= 7`,
    );
    const { rows } = await service.ctx.pool.query<{ seq: number }>(
      'select seq from event_chains where org_id = $1',
      [org],
    );
    expect((await verify(client)).wrong).toMatch(
      new RegExp(
        `^the log ends at entry 6, and was signed up to entry ${rows[0]!.seq} at .*: its end was cut off`,
      ),
    );
  });

  test('a log that an attacker without the key linked again', async () => {
    await fresh();
    const log = await wholeLog(service.ctx.pool, org);
    let link = genesisLink(org);
    const statements = log.flatMap((one) => {
      if (one.seq === entry.seq) {
        one.event!.category = 'other';
        one.leaf = leafOf(one.event!);
      }
      link = linkOf(link, one);
      return [
        `update event_log set leaf = '\\x${one.leaf.toString('hex')}', link = '\\x${link.toString('hex')}' where org_id = '${org}' and seq = ${one.seq}`,
      ];
    });
    const changed = `update events set category = 'other' where org_id = '${org}' and id = '${entry.event_id}'`;
    expect(await wrongAfter(client, changed, ...statements)).toMatch(
      /differs from the log signed at .*: it was rewritten/,
    );
    const end = `update event_chains set link = '\\x${link.toString('hex')}' where org_id = '${org}'`;
    expect(await wrongAfter(client, end, `delete from event_checkpoints where org_id = '${org}'`)).toMatch(
      /has a wrong signature of the key/,
    );
  });

  test('events removed before they were sealed', async () => {
    await fresh();
    await service.stopWorker();
    try {
      await client.post('/v1/volumes', { name: 'late' });
      expect(await verify(client)).toMatchObject({ wrong: null, unsealed: 1 });
      expect(
        await wrongAfter(
          client,
          `delete from events e using unsealed_events u where e.org_id = '${org}' and u.event_id = e.id`,
        ),
      ).toMatch(/was removed before it was sealed/);
    } finally {
      await service.close();
      service = await startTestService();
    }
  });
});

describe('an exported log', () => {
  /** A checkpoint inside the log is at the entry that it signed. */
  async function exported(client: Client): Promise<string[]> {
    const { pool } = service.ctx;
    const org_id = client.org.id;
    const drops = await checkpointOf<DropRecord>('event_drops', org_id);
    const checkpoints = await checkpointOf<Checkpoint>('event_checkpoints', org_id);
    const [end] = await checkpointOf<Checkpoint>('event_chains', org_id);
    const lines = [
      formatExportLine({ begin: { org_id, seq: 0, link: genesisLink(org_id) } }),
      formatExportLine({ end: end! }),
      ...drops.map((drop) => formatExportLine({ drop })),
    ];
    for (const entry of await wholeLog(pool, org_id)) {
      lines.push(formatExportLine({ entry }));
      lines.push(
        ...checkpoints
          .filter(({ seq }) => seq === entry.seq && seq < end!.seq)
          .map((checkpoint) => formatExportLine({ checkpoint })),
      );
    }
    return [...lines, formatExportLine({ checkpoint: end! })];
  }

  const check = (lines: readonly string[]) =>
    verifyFile(Readable.from([Buffer.from(lines.join(''))]), { keys: service.ctx.eventKeys().known }).then(
      ({ verdict }) => verdict,
    );

  test('can be verified without the database, and verification locates each change', async () => {
    const client = await orgWithEvents(6);
    const lines = await exported(client);
    const count = (await wholeLog(service.ctx.pool, client.org.id)).length;
    expect(await check(lines)).toMatchObject({ wrong: null, entries: count });

    const at = lines.findIndex((line) => line.startsWith('{"seq":5,'));
    const changed = lines.with(at, lines[at]!.replace('volume-', 'other-'));
    expect((await check(changed)).wrong).toMatch(/^entry 5 .* was changed/);
    expect((await check(lines.toSpliced(at, 1))).wrong).toBe('entry 5 was removed');
    expect((await check(lines.toSpliced(at, 0, lines[at]!))).wrong).toMatch(/^entry 5 comes after entry 5/);
    const swapped = lines.with(at, lines[at + 1]!).with(at + 1, lines[at]!);
    expect((await check(swapped)).wrong).toBe('entry 5 was removed');
    expect((await check(lines.slice(0, -1))).wrong).toMatch(/signed/);
    expect((await check([...lines.slice(0, -2), lines.at(-1)!])).wrong).toMatch(/its end was cut off/);
    const inner = lines.findIndex((line) => line.startsWith('{"checkpoint"'));
    expect((await check(lines.slice(0, inner + 1))).wrong).toBe(
      `the file ends at entry ${JSON.parse(lines[inner]!).checkpoint.seq}, but its first lines promise entries up to ${count}: its end was cut off`,
    );
    expect((await check(lines.toSpliced(1, 1))).wrong).toMatch(
      /first lines of the file do not promise its end/,
    );
    const middle = JSON.parse(lines[at]!);
    const part = [
      `${JSON.stringify({ log: { org_id: client.org.id, after_seq: 5, link: middle.link } })}\n`,
      lines[1]!,
      ...lines.slice(at + 1),
    ];
    expect(await check(part)).toMatchObject({ wrong: null, begins_after: 5 });
  });

  test('that ends within a line is reported as incomplete, with the line and the file', async () => {
    const client = await orgWithEvents(3);
    const lines = await exported(client);
    const number = lines.length - 2;
    const cut = lines.slice(0, number).join('').slice(0, -20);
    const wrong = `line ${number} is not a line of an exported log: it is not valid JSON; it was changed, or the file was cut off within it`;
    expect(await check([cut])).toMatchObject({ wrong, fault: 'tampered' });
    const file = join(service.directory, 'cut.ndjson');
    writeFileSync(file, cut);
    const verified = await run(['events', 'verify', '--file', file, '--data-dir', service.directory]);
    expect(verified).toEqual({ code: 1, out: `${file}: TAMPERED WITH: ${wrong}\n`, err: '' });
    writeFileSync(file, lines[0]!.slice(0, 20));
    const none = await run(['events', 'verify', '--file', file, '--data-dir', service.directory]);
    expectRefused(none, `${file}: line 1 is not a line of an exported log`);
  });

  test('with any single byte changed is rejected', async () => {
    const client = await orgWithEvents(3);
    const text = (await exported(client)).join('');
    await fc.assert(
      fc.asyncProperty(fc.nat(text.length - 1), fc.constantFrom('0', 'a', 'Z', '"'), async (at, letter) => {
        fc.pre(text[at] !== letter && text[at] !== '\n');
        const other = text.slice(0, at) + letter + text.slice(at + 1);
        const found = await check([other]).then(
          ({ wrong }) => wrong,
          (error: Error) => error.message,
        );
        expect(found).not.toBeNull();
      }),
      { numRuns: 300 },
    );
  });
});

describe('sandkeep events', () => {
  test('verify exits with an error and one sentence when something is wrong', async () => {
    const client = await orgWithEvents(3);
    const where = ['--database-url', urlOf(service.database), '--data-dir', service.directory];
    const [good] = await runJson(['events', 'verify', '--org', client.org.slug, ...where]);
    expect(good).toMatchObject({ name: client.org.slug, wrong: null });
    await tamper(service.ctx.pool, `delete from event_log where org_id = '${client.org.id}' and seq = 2`);
    const { code, out } = await run(['events', 'verify', '--org', client.org.slug, ...where]);
    expect({ code, out }).toEqual({
      code: 1,
      out: `${client.org.slug}: TAMPERED WITH: entry 2 was removed\n`,
    });
  });

  test('key prints the public key; verify still trusts a replaced key of this installation and no other', async () => {
    const client = await orgWithEvents(2);
    const before = await runJson(['events', 'key', '--data-dir', service.directory]);
    const { keys } = await runJson(['events', 'key', '--rotate', '--data-dir', service.directory]);
    expect(keys.slice(1)).toEqual(before.keys);
    const lines = readFileSync(join(service.directory, 'event-keys'), 'utf8').split('\n');
    expect(lines.filter((line) => line !== '' && !line.startsWith('public '))).toHaveLength(1);
    await client.post('/v1/volumes', { name: 'under-the-new-key' });
    await untilSealed(service.ctx.pool, client.org.id);
    expect((await verify(client)).wrong).toBeNull();
    const only = [parsePublicKey(keys[1].public_key)];
    expect(await verifyStore(service.ctx.pool, client.org.id, { keys: only })).toMatchObject({
      wrong: expect.stringMatching(/signed by the key [0-9a-f]{16}, which is not a trusted key/),
      fault: 'unknown_key',
    });
  });

  test('uses a key from the environment as given', () => {
    const file = join(service.directory, 'other-keys');
    openEventKeys({ file })();
    rotateEventKey(file);
    const text = readFileSync(file, 'utf8');
    const given = openEventKeys({ keys: text.trim().split('\n').join(',') })();
    expect(given.current).toEqual(openEventKeys({ file })().current);
    expect(() => openEventKeys({ keys: 'nonsense' })).toThrow('SANDKEEP_EVENT_KEYS');
  });
});
