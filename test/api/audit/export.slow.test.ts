import { parse as parseCsv } from 'csv-parse/sync';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { verifyFile } from '../../../src/audit/verify/verify-file.js';
import { expectRefused, run, runJson, urlOf } from '../../support/cli.js';
import type { Client } from '../../support/client.js';
import { untilSealed, wholeLog } from '../../support/event-log.js';
import { until } from '../../support/polling.js';
import { startTestService, type TestService } from '../../support/service.js';
import { askAndStare } from '../../support/unread-response.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService({ settings: { usageStallMs: 5_000, maxExports: 2 } });
  client = await orgWithEvents();
});
afterAll(() => service.close());

async function orgWithEvents(): Promise<Client> {
  const made = await service.newOrg();
  for (const name of ['one', 'two', 'three']) {
    const { body } = await made.post('/v1/volumes', { name });
    await made.patch(`/v1/volumes/${body.id}`, { labels: { name: '=cmd()', say: 'a "quoted", word' } });
    if (name === 'two') await made.delete(`/v1/volumes/${body.id}`);
  }
  await untilSealed(service.ctx.pool, made.org.id);
  return made;
}

const exported = (
  query: Record<string, string | string[]> = {},
  headers: Record<string, string> = {},
  by = client,
) => by.request('GET', '/v1/events/export', { query, headers });
const linesOf = (text: string): any[] =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
const entriesOf = (text: string) => linesOf(text).filter((line) => 'event_type' in line);
const verify = async (text: string, accepted: readonly string[] = []) => {
  const trust = { keys: service.ctx.eventKeys().known, accepted: new Set(accepted) };
  return (await verifyFile(Readable.from([Buffer.from(text)]), trust)).verdict;
};

describe('an export', () => {
  test('is the whole log in order, and can be verified without the database', async () => {
    const { status, text, headers } = await exported();
    expect([status, headers.get('content-type')]).toEqual([200, 'application/x-ndjson; charset=utf-8']);
    const log = await wholeLog(service.ctx.pool, client.org.id);
    const entries = entriesOf(text);
    expect(entries.map(({ seq }) => seq)).toEqual(log.slice(0, entries.length).map(({ seq }) => seq));
    const listed = (await client.get('/v1/events', { limit: 100 })).body.data;
    for (const { seq, leaf, link, resource_id, ...event } of entries) {
      expect(listed).toContainEqual(event);
      expect([leaf, link]).toEqual([log[seq - 1]!.leaf.toString('hex'), log[seq - 1]!.link.toString('hex')]);
      expect(resource_id).toBe(log[seq - 1]!.event!.resource_id);
    }
    expect(await verify(text)).toMatchObject({ wrong: null, entries: entries.length });
    const cut = text
      .split('\n')
      .filter((line) => !line.startsWith('{"seq":3,'))
      .join('\n');
    expect((await verify(cut)).wrong).toContain('was removed');
    expect((await verify(text.split('\n').slice(0, -2).join('\n'))).wrong).toMatch(
      /not signed|no signed end/,
    );
  });

  test('with a filter returns the few matching events among many others', async () => {
    const many = await service.newOrg();
    await many.post('/v1/volumes', { name: 'first' });
    await service.ctx.pool.query(
      `insert into events (org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id)
       select $1, gen_random_uuid(), now() + n * interval '1 minute', 'test', 'test_event',
         '{"kind":"system","code":"test","label":"test"}', 'null', 'system', 'test'
       from generate_series(1, 1700) n`,
      [many.org.id],
    );
    await untilSealed(service.ctx.pool, many.org.id, 30_000);
    await many.post('/v1/volumes', { name: 'last' });
    await untilSealed(service.ctx.pool, many.org.id);
    const names = entriesOf((await exported({ category: 'volume' }, {}, many)).text).map(
      ({ payload }) => payload.name,
    );
    expect(names).toEqual([null, 'first', 'last']);
    const csv = (await exported({ category: 'volume', format: 'csv' }, {}, many)).text;
    expect(csv.trimEnd().split('\r\n')).toHaveLength(4);
    expect(entriesOf((await exported({}, {}, many)).text).length).toBeGreaterThan(1_700);
  });

  test('records an audit event at its start with the caller and the filters', async () => {
    const before = (await client.get('/v1/events', { event_type: 'events_exported' })).body.data.length;
    await exported({ category: ['volume', '!webhook'], since: '2020-01-01T00:00:00Z', format: 'csv' });
    const { data } = (await client.get('/v1/events', { event_type: 'events_exported' })).body;
    expect(data).toHaveLength(before + 1);
    expect(data[0]).toMatchObject({
      actor: { kind: 'api_key', api_key_id: client.keyId },
      payload: {
        format: 'csv',
        filters: { category: ['volume', '!webhook'], since: '2020-01-01T00:00:00Z' },
        after_seq: 0,
        up_to_seq: expect.any(Number),
      },
    });
    await exported({ since: 'yesterday' });
    expect((await client.get('/v1/events', { event_type: 'events_exported' })).body.data).toHaveLength(
      before + 1,
    );
  });

  test('continues at the end of a previous export, and both together are complete', async () => {
    const first = await exported();
    await client.post('/v1/volumes', { name: `later-${uuidv7()}` });
    await untilSealed(service.ctx.pool, client.org.id);
    const cursor = first.headers.get('next-cursor')!;
    const second = await exported({ cursor });
    const seqs = [...entriesOf(first.text), ...entriesOf(second.text)].map(({ seq }) => seq);
    expect(seqs).toEqual(seqs.map((_, index) => index + 1));
    const begins_after = entriesOf(first.text).length;
    expect(await verify(second.text)).toMatchObject({ wrong: null, begins_after });
    const third = await exported({ after_seq: '3' });
    expect(entriesOf(third.text)[0].seq).toBe(4);
    expect(await verify(third.text)).toMatchObject({ wrong: null, begins_after: 3 });
    // After the last entry only the end line follows.
    const last = await exported({
      cursor: (await exported({ event_type: 'member_removed' })).headers.get('next-cursor')!,
    });
    expect((await verify(last.text)).wrong).toBe(null);
  });

  test('is valid for a new organization', async () => {
    const fresh = await service.newOrg();
    expect((await exported({}, {}, fresh)).status).toBe(200);
  });

  test('with filters matches the list, declares that it is filtered, and does not pass as complete', async () => {
    const volume = (await client.get('/v1/volumes')).body.find(({ name }: any) => name === 'one').id;
    for (const query of [
      { event_type: ['volume_created', 'volume_updated'] },
      { event_type: '!volume_created' },
      { category: 'volume', resource_id: `!${volume}` },
      { resource_id: volume.toUpperCase() },
      { actor_kind: 'system' },
      { actor_id: ['operator', `!${client.keyId}`] },
      { since: '2020-01-01T00:00:00Z', until: new Date().toISOString() },
    ] as Record<string, string | string[]>[]) {
      const { text } = await exported(query);
      await untilSealed(service.ctx.pool, client.org.id);
      const [head] = linesOf(text);
      expect(head.filtered).toMatchObject({
        org_id: client.org.id,
        after_seq: 0,
        filters: expect.anything(),
      });
      expect(linesOf(text).at(-1).checkpoint.seq).toBe(head.filtered.up_to_seq);
      const listed = (await client.get('/v1/events', { ...query, limit: 100 })).body.data;
      const ids = new Set(entriesOf(text).map(({ id }) => id));
      // Events recorded after the export, such as its own event, are only in the list.
      const missing = listed.filter(({ id }: any) => !ids.has(id));
      expect(missing.every(({ event_type }: any) => event_type === 'events_exported')).toBe(true);
      expect(ids.size).toBe(listed.length - missing.length);
      await expect(verify(text)).rejects.toThrow('filtered');
    }
  });

  test('as CSV holds no cell that a spreadsheet treats as a formula', async () => {
    for (const answer of [await exported({ format: 'csv' }), await exported({}, { accept: 'text/csv' })]) {
      expect(answer.headers.get('content-type')).toBe('text/csv; charset=utf-8');
      const rows = parseCsv(answer.text);
      expect(rows[0]).toEqual(
        'seq,id,timestamp,category,event_type,actor_kind,actor_id,actor,resource_id,payload,leaf,link'.split(
          ',',
        ),
      );
      const { text } = await exported({ until: rows.at(-1)![2]! });
      const plain = entriesOf(text);
      expect(plain.length).toBeGreaterThan(5);
      for (const [index, { seq, id, payload, actor }] of plain.entries()) {
        const row = rows[index + 1]!;
        expect([row[0], row[1], JSON.parse(row[7]!), JSON.parse(row[9]!)]).toEqual([
          String(seq),
          id,
          actor,
          payload,
        ]);
      }
    }
    // The `format` parameter overrides the Accept header.
    const asked = await exported({ format: 'ndjson' }, { accept: 'text/csv' });
    expect(asked.headers.get('content-type')).toContain('ndjson');
  });

  test('refuses unknown parameters and cursors of other organizations', async () => {
    const other = await service.newOrg();
    await untilSealed(service.ctx.pool, other.org.id);
    const foreign = (await exported({}, {}, other)).headers.get('next-cursor')!;
    for (const [query, parameter] of [
      [{ cursor: foreign }, 'cursor'],
      [{ cursor: 'x' }, 'cursor'],
      [{ after_seq: '9999999' }, 'after_seq'],
      [{ after_seq: '1', cursor: foreign }, 'after_seq'],
      [{ format: 'xml' }, 'format'],
      [{ resource_id: 'x' }, 'resource_id'],
      [{ limit: '3' }, 'limit'],
    ] as [Record<string, string>, string][]) {
      const { status, body } = await exported(query);
      expect([status, body.error.details.parameter]).toEqual([400, parameter]);
    }
    const head = await fetch(`${client.url}/v1/events/export`, { method: 'HEAD' });
    expect(head.status).toBe(405);
  });
});

describe('an export of many events', () => {
  const MANY = 20_000;
  let large: Client;
  beforeAll(async () => {
    large = await service.newOrg();
    await service.ctx.pool.query(
      `insert into events (org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id)
       select $1, gen_random_uuid(), now() + n * interval '1 microsecond', 'test', 'imported_from_elsewhere',
         '{"kind":"system","code":"test","label":"Test"}', json_build_object('pad', repeat('x', 1000)), 'system', 'test'
       from generate_series(1, $2::int) n`,
      [large.org.id, MANY],
    );
    await untilSealed(service.ctx.pool, large.org.id, 60_000);
  });

  const stare = () => askAndStare(large, '/v1/events/export');

  test('is complete', async () => {
    const { text } = await exported({}, {}, large);
    const ids = entriesOf(text).map(({ id }) => id);
    expect(await verify(text, ids)).toMatchObject({ wrong: null, entries: MANY + 3, unmarked: MANY });
  });

  test('is cut off when its client stops reading, and leaves nothing open', async () => {
    const staring = await stare();
    const closed = new Promise((resolve) => staring.once('close', resolve));
    await until(
      () => Promise.resolve(service.ctx.requests.watched.totalCount - service.ctx.requests.watched.idleCount),
      (busy) => busy === 0,
    );
    staring.resume();
    await closed;
    expect(staring.complete).toBe(false);
  });

  test('waits for its turn', async () => {
    const staring = await stare();
    const begun = performance.now();
    expect((await exported({ event_type: 'member_removed' }, {}, large)).status).toBe(200);
    expect(performance.now() - begun).toBeGreaterThan(300);
    staring.destroy();
  });
});

describe('sandkeep events export', () => {
  let folder: string;
  let args: string[];
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'sandkeep-export-'));
    args = ['events', 'export', '--database-url', urlOf(service.database), '--org', client.org.slug];
    args.push('--data-dir', service.directory);
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test('writes the bytes that the API sends, and verify --file checks them', async () => {
    const out = join(folder, 'all.ndjson');
    const result = await runJson([...args, '--out', out]);
    const text = readFileSync(out, 'utf8');
    expect(result).toEqual({
      file: out,
      entries: entriesOf(text).length,
      up_to_seq: entriesOf(text).at(-1).seq,
    });
    expect((await verify(text)).wrong).toBe(null);
    const [key] = service.ctx.eventKeys().known;
    const verifying = ['events', 'verify', '--file', out, '--public-key', key!.bytes.toString('base64')];
    expect((await run(verifying)).out).toContain('in order');
    writeFileSync(out, text.replace('volume_created', 'volume_deleted'));
    const found = await run(verifying);
    expect([found.code, found.out]).toEqual([1, expect.stringContaining('TAMPERED')]);
    const { data } = (await client.get('/v1/events', { event_type: 'events_exported' })).body;
    expect(data[0].actor).toEqual({ kind: 'system', code: 'operator', label: 'sandkeep events export' });
    expect(readdirSync(folder)).toEqual(['all.ndjson']);
  });

  test('in two files is complete only when the second starts after the last complete line of the first', async () => {
    const { text } = await exported();
    const lines = text.split('\n').slice(0, -1);
    const file = (name: string, content: string) => {
      writeFileSync(join(folder, name), content);
      return join(folder, name);
    };
    const printed = (await run(['events', 'key', '--data-dir', service.directory])).out;
    // The state after a key rotation.
    const keys = `${printed}${Buffer.alloc(32, 1).toString('base64')}  0123456789abcdef\n`;
    const check = async (...files: string[]) => {
      const args = files.flatMap((each) => ['--file', each]);
      const { code, out } = await run(['events', 'verify', ...args, '--public-key', keys]);
      return { code, said: out.trimEnd().split('\n') };
    };
    const at = lines.findIndex((each) => each.startsWith('{"seq":5,'));
    const half = file('half', [...lines.slice(0, at + 1), lines[at + 1]!.slice(0, 100)].join('\n'));
    const unsigned = file('unsigned', lines.slice(0, -1).join('\n'));
    const lastOf = (path: string) => Number(/.*\n\{"seq":(\d+),/s.exec(readFileSync(path, 'utf8'))![1]);
    const last = lastOf(unsigned);
    await client.post('/v1/volumes', { name: `later-${uuidv7()}` });
    await untilSealed(service.ctx.pool, client.org.id);
    const rest = file('rest', (await exported({ after_seq: '5' })).text);
    const tail = file('tail', (await exported({ after_seq: String(last) })).text);

    expect((await verify(readFileSync(half, 'utf8'))).wrong).toContain('cut off');
    expect((await verify(readFileSync(unsigned, 'utf8'))).wrong).toMatch(/no signed end/);
    const middle = file('middle', readFileSync(rest, 'utf8').slice(0, -10));
    const end = file('end', (await exported({ after_seq: String(lastOf(rest)) })).text);
    for (const [files, after] of [
      [[half, middle, end], 5],
      [[unsigned, tail], last],
    ] as const) {
      const { code, said } = await check(...files);
      expect([code, said[0], said.at(-1)]).toEqual([
        0,
        expect.stringContaining(`it broke off after entry ${after}, where the next goes on`),
        expect.stringContaining('in order'),
      ]);
    }
    // The second file starts elsewhere, is older than the first, or was changed.
    expect((await check(half, tail)).said).toEqual([
      expect.stringContaining('cut off'),
      expect.stringContaining('it does not go on where'),
    ]);
    // The exports have recorded events after the end of `rest`.
    await untilSealed(service.ctx.pool, client.org.id);
    const newer = (await exported()).text.split('\n').slice(0, at + 1);
    const later = file('later', newer.join('\n'));
    expect((await check(later, rest)).said[1]).toMatch(/the previous file promised entries up to/);
    const forged = file('forged', readFileSync(half, 'utf8').replace('volume_', 'other_'));
    expect((await check(forged, rest)).said[0]).toMatch(/TAMPERED/);
  });

  test('replaces a file only with the option for it', async () => {
    const out = join(folder, 'kept.csv');
    writeFileSync(out, 'mine');
    expectRefused(await run([...args, '--csv', '--out', out]), 'already exists: --force replaces it');
    expect(readFileSync(out, 'utf8')).toBe('mine');
    expect((await run([...args, '--csv', '--out', out, '--force', '--type', 'volume_created'])).code).toBe(0);
    const rows = parseCsv(readFileSync(out, 'utf8'));
    expect(new Set(rows.slice(1).map((row) => row[4]))).toEqual(new Set(['volume_created']));
    expectRefused(await run([...args, '--out', join(folder, 'no', 'where')]), 'cannot write');
    expect(existsSync(join(folder, 'no'))).toBe(false);
  });

  test('continues after an entry, writes to standard output, and prints how to continue', async () => {
    const { out, err, code } = await run([...args, '--after-seq', '2', '--type', '!events_exported']);
    expect(code).toBe(0);
    expect(entriesOf(out)[0].seq).toBe(3);
    expect(err).toMatch(/^\d+ events; the next export begins with --after-seq \d+\n$/);
    expectRefused(await run([...args, '--since', 'yesterday']), 'since must be an RFC 3339 date-time');
    expectRefused(await run([...args, '--after-seq', 'x']), '--after-seq must be a whole number');
  });
});
