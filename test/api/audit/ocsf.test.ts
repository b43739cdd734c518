import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { expectRefused, run, urlOf } from '../../support/cli.js';
import type { Client } from '../../support/client.js';
import { untilSealed, wholeLog } from '../../support/event-log.js';
import { openEvents } from '../../support/event-stream.js';
import { ocsfFaults } from '../../support/ocsf-1-8.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService();
  client = await service.newOrg();
  for (const name of ['one', 'two', 'three']) await client.post('/v1/volumes', { name });
  await untilSealed(service.ctx.pool, client.org.id);
});
afterAll(() => service.close());

const linesOf = (text: string): any[] =>
  text === ''
    ? []
    : text
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line));
const exported = (query: Record<string, string> = {}, by = client) =>
  by.get('/v1/events/export', { format: 'ocsf', ...query });

describe('an export as OCSF', () => {
  test('has a valid event on each line, with its place in the log', async () => {
    const { status, text, headers } = await exported();
    expect([status, headers.get('content-type')]).toEqual([200, 'application/x-ndjson; charset=utf-8']);
    const events = linesOf(text);
    expect(events.flatMap(ocsfFaults)).toEqual([]);
    const log = (await wholeLog(service.ctx.pool, client.org.id)).slice(0, events.length);
    expect(events.map(({ metadata, unmapped }) => [metadata.sequence, unmapped.log.link])).toEqual(
      log.map(({ seq, link }) => [seq, link.toString('hex')]),
    );
    const links = events.map(({ unmapped }) => unmapped.log.link);
    expect(events.slice(1).map(({ unmapped }) => unmapped.log.previous_link)).toEqual(links.slice(0, -1));
    expect(events[0].unmapped.log.previous_link).toMatch(/^[0-9a-f]{64}$/);
    expect(events.at(-1).unmapped.log.checkpoint).toEqual({
      at: expect.any(String),
      key_id: service.ctx.eventKeys().current.id,
      signature: expect.any(String),
    });
    const listed = (await client.get('/v1/events', { limit: 100 })).body.data;
    for (const { metadata, unmapped, time } of events) {
      const { payload, actor, timestamp } = unmapped;
      expect(listed).toContainEqual(expect.objectContaining({ id: metadata.uid, payload, actor, timestamp }));
      expect(time).toBe(Date.parse(timestamp));
    }
  });

  test('takes filters, knows the links of excluded entries, and is an audit event', async () => {
    const all = linesOf((await exported()).text);
    const volumes = linesOf((await exported({ event_type: 'volume_created' })).text);
    expect(volumes.map(({ metadata }) => metadata.uid)).toEqual(
      all
        .filter(({ metadata }) => metadata.event_code === 'volume_created')
        .map(({ metadata }) => metadata.uid),
    );
    for (const { metadata, unmapped } of volumes) {
      expect(unmapped.log.previous_link).toBe(all[metadata.sequence - 1].unmapped.log.previous_link);
    }
    const last = (await client.get('/v1/events', { event_type: 'events_exported', limit: 1 })).body.data[0];
    expect(last.payload).toMatchObject({ format: 'ocsf', filters: { event_type: ['volume_created'] } });
    expect(
      linesOf((await exported({ event_type: '!volume_created', until: '2020-01-01T00:00:00Z' })).text),
    ).toEqual([]);
  });

  test('shows nothing of another organization', async () => {
    const { text } = await exported({}, await service.newOrg());
    expect(text).not.toContain(client.org.id);
    expect(text).not.toContain('two');
  });

  test('is printed by the command, too', async () => {
    // The last entry has a signature: that becomes the event of this export.
    await exported();
    await untilSealed(service.ctx.pool, client.org.id);
    const args = ['events', 'export', '--database-url', urlOf(service.database), '--org', client.org.slug];
    const { code, out } = await run([...args, '--type', 'volume_created', '--format', 'ocsf']);
    expect(code).toBe(0);
    expect(linesOf(out)).toEqual(linesOf((await exported({ event_type: 'volume_created' })).text));
    expectRefused(await run([...args, '--format', 'ocsf', '--csv']), 'choose one of --csv and --format');
    expectRefused(await run([...args, '--format', 'cef']), 'ndjson, csv, ocsf');
  });
});

describe('a stream as OCSF', () => {
  test('sends valid events with the ids and names of the other format', async () => {
    const take = async (format: string) => {
      const leave = new AbortController();
      const path = `/v1/events/stream?format=${format}&event_type=volume_created&since=2020-01-01T00:00:00Z`;
      const { response, events } = await openEvents(client, path, { signal: leave.signal });
      expect(response.status).toBe(200);
      const taken = [];
      for await (const event of events) {
        if (event.data !== undefined) taken.push(event);
        if (taken.length === 4) break;
      }
      leave.abort();
      return taken;
    };
    const [plain, mapped] = [await take('sandkeep'), await take('ocsf')];
    expect(mapped.map(({ event, id, data }) => [event, id, data.metadata.uid])).toEqual(
      plain.map(({ event, id, data }) => [event, id, data.id]),
    );
    expect(mapped.flatMap(({ data }) => ocsfFaults(data))).toEqual([]);
    const written = linesOf((await exported({ event_type: 'volume_created' })).text);
    const placeOf = ({ seq, leaf, link, previous_link }: any) => [seq, leaf, link, previous_link];
    expect(mapped.map(({ data }) => placeOf(data.unmapped.log))).toEqual(
      written.map(({ unmapped }) => placeOf(unmapped.log)),
    );
  });

  test.each(['/v1/events/stream', '/v1/events/export'])(
    '%s names the formats that it takes',
    async (path) => {
      const { status, body } = await client.get(path, { format: 'cef' });
      expect([status, body.error.code, body.error.details]).toEqual([
        400,
        'invalid_request',
        { parameter: 'format' },
      ]);
      expect(body.error.message).toMatch(/ocsf/);
    },
  );
});
