import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { saveDestinationPolicy } from '../../src/webhooks/destination-policy.js';
import { expectRefused, NO_DOCKER, run, runJson, urlOf } from '../support/cli.js';
import type { Client } from '../support/client.js';
import { startTestService, type TestService } from '../support/service.js';

let service: TestService;
let client: Client;
let where: string[];
beforeAll(async () => {
  service = await startTestService({ worker: false });
  client = await service.newOrg();
  where = [
    '--database-url',
    urlOf(service.database),
    '--data-dir',
    service.directory,
    '--org',
    client.org.slug,
  ];
});
afterAll(() => service.close());

const create = (...more: string[]) => ['webhook', 'create', ...more, ...where];
const HTTP = 'http://example.com/';

describe('the environment variables of webhooks', () => {
  test.each([['false'], ['']])('leave a flag off for %j', async (word) => {
    const refused = await run(create(HTTP), { env: { SANDKEEP_WEBHOOK_HTTP: word } });
    expectRefused(refused, 'url must begin with https://');
  });

  test('set a flag for a word that means yes, and the option itself overrides them', async () => {
    const made = await runJson(create(HTTP), { env: { SANDKEEP_WEBHOOK_HTTP: 'true' } });
    expect(made.url).toBe(HTTP);
    const flag = await runJson(create(HTTP, '--webhook-http'), { env: { SANDKEEP_WEBHOOK_HTTP: 'false' } });
    expect(flag.url).toBe(HTTP);
  });

  test('are refused for a word that means neither yes nor no', async () => {
    const refused = await run(create(HTTP), { env: { SANDKEEP_WEBHOOK_HTTP: 'maybe' } });
    expectRefused(refused, 'SANDKEEP_WEBHOOK_HTTP is "maybe"; it must be true or false');
  });

  test('give an empty list for empty text', async () => {
    const made = await runJson(create('https://example.com/'), { env: { SANDKEEP_WEBHOOK_ALLOW: '' } });
    expect(made.url).toBe('https://example.com/');
    const database = ['--database-url', 'postgres://nobody@127.0.0.1:1/none'];
    const env = { SANDKEEP_DOCKER_ALLOW: ' ', SANDKEEP_WEBHOOK_ALLOW: '' };
    expectRefused(await run(['serve', ...database, ...NO_DOCKER], { env }), 'cannot reach the database');
    expectRefused(await run(create(HTTP, '--webhook-allow', '10.0.0.0/8,')), 'addresses and CIDR blocks');
  });
});

describe('the allowed addresses of webhooks', () => {
  const atHome = (directory: string, url: string, ...more: string[]) =>
    run(['webhook', 'create', url, ...where, '--data-dir', directory, ...more]);

  test('are refused with the name of the missing flag', async () => {
    expectRefused(
      await run(create(HTTP)),
      'url must begin with https://: start "sandkeep serve" with --webhook-http, and pass it to this command',
    );
    expectRefused(
      await run(create('https://10.1.2.3/')),
      '10.1.2.3 is not a public address: start "sandkeep serve" with --webhook-allow 10.1.2.3, and pass it',
    );
  });

  test('are those of the running service for commands, which warn when they allow more', async () => {
    // Another directory, so the keys of the service stay as they are.
    const directory = join(service.directory, 'served');
    const keys = ['--secret-keys-file', join(service.directory, 'secret-keys')];
    const events = ['--event-keys-file', join(service.directory, 'event-keys')];
    saveDestinationPolicy(directory, { allow: ['10.0.0.0/8'], http: false });
    const made = await atHome(directory, 'https://10.1.2.3/', ...keys, ...events);
    expect(made).toMatchObject({ code: 0, err: '' });
    expectRefused(await atHome(directory, 'http://10.1.2.3/', ...keys, ...events), '--webhook-http');
    const beyond = await atHome(directory, HTTP, '--webhook-http', ...keys, ...events);
    expect(beyond).toMatchObject({
      code: 0,
      err: `sandkeep: the service was last started without --webhook-http: it sends nothing to ${HTTP} until it is\n`,
    });
    saveDestinationPolicy(directory, { allow: [], http: true });
    expect(await atHome(directory, HTTP, ...keys, ...events)).toMatchObject({ code: 0, err: '' });
    expectRefused(
      await atHome(directory, 'https://10.1.2.3/', ...keys, ...events),
      '--webhook-allow 10.1.2.3',
    );
  });
});

describe('sandkeep webhook', () => {
  const make = async (event_types: string[] = []): Promise<string> =>
    (await client.post('/v1/webhooks', { url: 'https://example.com/', event_types })).body.id;
  const eventsOf = async (id: string) =>
    (await client.get('/v1/events', { resource_id: id })).body.data.map(({ event_type }: any) => event_type);

  test('update takes the same types as create, and refuses an empty change', async () => {
    const types = ['--type', 'volume_created', '--type', 'volume_updated'];
    const made = await runJson(create('https://example.com/', ...types));
    expect(made.event_types).toEqual(['volume_created', 'volume_updated']);
    const update = (...more: string[]) => ['webhook', 'update', made.id, ...more, ...where];
    expect((await runJson(update('--type', ''))).event_types).toEqual([]);
    const changed = await runJson(update('--type', '!volume_created', '--type', '!volume_updated'));
    expect(changed.event_types).toEqual(['!volume_created', '!volume_updated']);
    expect((await runJson(update('--format', 'ocsf'))).format).toBe('ocsf');
    expect((await runJson(create('https://example.com/', '--format', 'cloudevents'))).format).toBe(
      'cloudevents',
    );
    const before = await eventsOf(made.id);
    expectRefused(await run(update('--format', 'xml')), 'sandkeep, cloudevents, ocsf');
    expectRefused(await run(update()), 'nothing is to be changed');
    expect(await eventsOf(made.id)).toEqual(before);
  });

  test.each([[''], ['604801']])('refuses an overlap of %j', async (overlap) => {
    const id = await make();
    const refused = await run(['webhook', 'rotate-secret', id, '--overlap-secs', overlap, ...where]);
    expectRefused(refused, 'It must be a number of seconds from 0 to 604800.');
    expect(await eventsOf(id)).toEqual(['webhook_created']);
  });

  test('refuses types that would match nothing, like the API', async () => {
    const unknown = 'there is no event type "sandbox_strated"';
    expectRefused(await run(create('https://example.com/', '--type', 'sandbox_strated')), unknown);
    const id = await make(['sandbox_started']);
    const ask = async (event_types: string[]) => {
      const { status, body } = await client.patch(`/v1/webhooks/${id}`, { event_types });
      return [status, body.error?.message, body.error?.details];
    };
    const field = { field: 'event_types' };
    expect(await ask(['sandbox_strated'])).toEqual([400, expect.stringContaining(unknown), field]);
    expect(await ask(['!sandbox_strated'])).toEqual([400, expect.stringContaining(unknown), field]);
    expect(await ask(['constructor'])).toEqual([400, expect.stringContaining('"constructor"'), field]);
    const both = ['volume_created', '!volume_created'];
    expect(await ask(both)).toEqual([400, expect.stringContaining('must list either'), field]);
    expect(await ask(['!volume_created'])).toEqual([200, undefined, undefined]);
  });
});
