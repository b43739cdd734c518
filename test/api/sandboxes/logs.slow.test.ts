import { subscribe } from 'node:diagnostics_channel';
import { request as httpRequest, type ClientRequest, type IncomingMessage } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { makeClient, type Client } from '../../support/client.js';
import { destroyAll, onDocker } from '../../support/docker-service.js';
import { containerOf, describeDocker, IMAGE, makeImage } from '../../support/docker.js';
import { allEvents, nextEvent, openEvents, type ServerEvent } from '../../support/event-stream.js';
import { heldMemory } from '../../support/held-memory.js';
import { exchangeRaw, requestHead, WEBSOCKET } from '../../support/raw-connection.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { until, untilStatus } from '../../support/polling.js';

const running = { start: true, wait_for: 'running', wait_timeout: 120 };
const ALL = 'sources=stdout,stderr,output,system';

describe('logs of simulated sandboxes', () => {
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    service = await startTestService({ settings: { maxLogFollowers: 5, logKeepAliveMs: 100 } });
    client = await service.newOrg();
  });
  afterAll(() => service.close());

  test('report once to a reader of the system source that nothing runs, and end with the run', async () => {
    const { body } = await client.post('/v1/sandboxes', smallRequest('follow'), running);
    for (const path of [`/v1/sandboxes/${body.id}/logs`, '/v1/sandboxes/by-name/follow/logs']) {
      const { response, events } = await openEvents(client, `${path}?${ALL}`);
      expect(Object.fromEntries(response.headers)).toMatchObject({
        'content-type': 'text/event-stream',
        'cache-control': 'no-store, no-transform',
        'x-request-id': expect.any(String),
      });
      expect((await events.next()).value).toEqual({ comment: 'following' });
      const value = await nextEvent(events);
      expect(value.event).toBe('log');
      expect(value.data).toEqual({
        source: 'system',
        ts: expect.any(String),
        text: expect.stringMatching(/\n$/),
      });
      expect(Math.abs(Date.parse(value.data.ts) - Date.now())).toBeLessThan(60_000);
      // The comment shows that the connection is alive.
      expect((await events.next()).value).toEqual({ comment: 'nothing new' });
      await events.return(undefined);
    }
    const path = `/v1/sandboxes/${body.id}/logs?${ALL}`;
    const first = (await openEvents(client, path)).events;
    await first.next();
    const id = (await nextEvent(first)).id!;
    await first.return(undefined);
    // A reader that continues has the line.
    const { events } = await openEvents(client, path, { headers: { 'last-event-id': id } });
    await events.next();
    await client.post(`/v1/sandboxes/${body.id}/stop`, {});
    expect(await allEvents(events)).toEqual([{ event: 'end', data: {} }]);
  });

  test('end at once for a sandbox that has not run, or no longer runs', async () => {
    const { body } = await client.post('/v1/sandboxes', smallRequest('rests'));
    const end = [{ event: 'end', data: {} }];
    expect(await allEvents((await openEvents(client, `/v1/sandboxes/${body.id}/logs`)).events)).toEqual(end);
    await client.post(`/v1/sandboxes/${body.id}/start`, {}, { wait_for: 'running' });
    await client.post(`/v1/sandboxes/${body.id}/stop`, {});
    await untilStatus(client, body.id, 'stopped');
    expect(await allEvents((await openEvents(client, `/v1/sandboxes/${body.id}/logs`)).events)).toEqual(end);
  });

  test('refuse unknown parameters', async () => {
    const { body } = await client.post('/v1/sandboxes', smallRequest('strict'));
    const path = `/v1/sandboxes/${body.id}/logs`;
    for (const sources of ['', 'stdin', 'stdout,', 'stdout, stderr']) {
      const { status, body: refusal } = await client.get(path, { sources });
      expect([status, refusal.error.details]).toEqual([400, { parameter: 'sources' }]);
    }
    expect((await client.get(path, { follow: true })).status).toBe(400);
    for (const id of [
      '5',
      'AQ==',
      Buffer.alloc(33).toString('base64'),
      Buffer.alloc(17, 1).toString('base64'),
    ]) {
      const answer = await client.request('GET', path, { headers: { 'last-event-id': id } });
      expect([answer.status, answer.body.error.details]).toEqual([400, { parameter: 'last-event-id' }]);
    }
    expect((await fetch(`${client.url}${path}`, { method: 'HEAD' })).status).toBe(405);
  });

  test('are followed by a limited number of clients, and a slot becomes free when its client leaves', async () => {
    const { body } = await client.post('/v1/sandboxes', smallRequest('crowded'), running);
    const path = `/v1/sandboxes/${body.id}/logs`;
    const leave = new AbortController();
    const following = [];
    for (let count = 0; count < 3; count += 1) {
      const { response } = await openEvents(client, path, { signal: leave.signal });
      expect(response.status).toBe(200);
      following.push(response.text().catch(() => 'left'));
    }
    const refused = await client.get(path);
    expect([refused.status, refused.body.error.code]).toEqual([429, 'rate_limited']);
    leave.abort();
    await Promise.all(following);
    // A refused request takes no slot.
    expect((await client.get('/v1/sandboxes/00000000-0000-7000-8000-000000000000/logs')).status).toBe(404);
    const again = await until(
      () => openEvents(client, path),
      ({ response }) => response.status === 200,
    );
    await client.delete(`/v1/sandboxes/${body.id}`);
    expect((await allEvents(again.events)).at(-1)).toEqual({ event: 'end', data: {} });
  });

  test('end for a key narrowed to a label when the sandbox loses the label, and not for other keys', async () => {
    const made = await client.post('/v1/keys', {
      name: 'ml',
      scopes: ['sandboxes:write'],
      labels: { team: 'ml' },
    });
    const ml = makeClient(service.url, { org: client.org, key: made.body.key, keyId: made.body.id });
    const { body } = await ml.post('/v1/sandboxes', smallRequest('labelled'), running);
    const path = `/v1/sandboxes/${body.id}`;
    const [narrow, wide] = [await openEvents(ml, `${path}/logs`), await openEvents(client, `${path}/logs`)];
    await narrow.events.next();
    // While the sandbox has the label, the stream continues.
    expect((await client.patch(path, { labels: { team: 'ml', stage: 'b' } })).status).toBe(200);
    expect((await narrow.events.next()).value).toEqual({ comment: 'nothing new' });
    expect((await client.patch(path, { labels: { team: 'web' } })).status).toBe(200);
    expect(await allEvents(narrow.events)).toEqual([]);
    await client.post(`${path}/stop`, {});
    expect((await allEvents(wide.events)).at(-1)).toEqual({ event: 'end', data: {} });
  });

  test('wait for a sandbox that is starting', async () => {
    const slow = await startTestService({ simulated: { startMs: 700 } });
    try {
      const mine = await slow.newOrg();
      const { body } = await mine.post('/v1/sandboxes', smallRequest('slow'), { start: true });
      const { events } = await openEvents(mine, `/v1/sandboxes/${body.id}/logs?${ALL}`);
      await events.next();
      expect((await events.next()).value.data.source).toBe('system');
      expect((await mine.get(`/v1/sandboxes/${body.id}`)).body.status).toBe('running');
      await events.return(undefined);
    } finally {
      await slow.close();
    }
  });

  test('end without the event `end` when the service stops, because the run continues', async () => {
    const stopping = await startTestService();
    const mine = await stopping.newOrg();
    const { body } = await mine.post('/v1/sandboxes', smallRequest('goes-on'), running);
    const { events } = await openEvents(mine, `/v1/sandboxes/${body.id}/logs`);
    await events.next();
    const rest = allEvents(events);
    await stopping.close(120_000);
    expect(await rest).toEqual([{ retry: '1000' }]);
  });
});

describe('the agent channel', () => {
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    service = await startTestService();
    client = await service.newOrg();
  });
  afterAll(() => service.close());

  // The service also closes the socket of a refused upgrade.
  const upgrade = (id: string, key = client.key) =>
    exchangeRaw(client.url, requestHead(`GET /v1/sandboxes/${id}/agent`, key, ...WEBSOCKET));

  test('answers 501 for an existing sandbox, also to an upgrade', async () => {
    const { body } = await client.post('/v1/sandboxes', smallRequest('agent'), running);
    const plain = await client.get(`/v1/sandboxes/${body.id}/agent`);
    expect([plain.status, plain.body.error.code]).toEqual([501, 'not_supported']);
    const upgraded = await upgrade(body.id);
    expect(upgraded).toMatch(/^HTTP\/1\.1 501 /);
    expect(upgraded).toContain('"code":"not_supported"');
  });

  test('answers 404 for an unknown sandbox, 401 without a key, and closes the socket', async () => {
    const missing = '00000000-0000-7000-8000-000000000000';
    expect((await client.get(`/v1/sandboxes/${missing}/agent`)).status).toBe(404);
    expect(await upgrade(missing)).toMatch(/^HTTP\/1\.1 404 /);
    expect(await upgrade(missing, 'skp_nobody')).toMatch(/^HTTP\/1\.1 401 /);
    expect(await upgrade('no-id')).toMatch(/^HTTP\/1\.1 400 /);
  });
});

/** Records the log requests of the service to the engine that are open, from now on. */
function followedAtEngine(): Set<ClientRequest> {
  const underWay = new Set<ClientRequest>();
  subscribe('http.client.request.start', (message) => {
    const { request } = message as { request: ClientRequest };
    if (!/^\/containers\/\w+\/logs\?/.test(request.path)) return;
    underWay.add(request);
    request.once('close', () => underWay.delete(request));
  });
  return underWay;
}

describeDocker('logs of containers', () => {
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    makeImage();
    service = await startTestService({
      ...onDocker(),
      settings: { stopGraceMs: 1_000, ephemeralLingerMs: 500 },
    });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
  });

  const request = (name: string, script: string, part = {}) =>
    smallRequest(name, {
      image: { type: 'oci', reference: IMAGE },
      pull_policy: 'never',
      runtime: { cmd: ['sh', '-c', script] },
      ...part,
    });
  async function run(name: string, script: string): Promise<string> {
    const { body } = await client.post('/v1/sandboxes', request(name, script), running);
    expect(body.status).toBe('running');
    return body.id;
  }
  /** Its run ends with the command, on a busy machine perhaps before the reconciler sees it running. */
  async function runToItsEnd(name: string, script: string): Promise<string> {
    const lifecycle = { ends_with_command: true };
    const { status, body } = await client.post('/v1/sandboxes', request(name, script, { lifecycle }), {
      start: true,
    });
    expect(status).toBe(200);
    return body.id;
  }
  const follow = async (id: string, query = '', headers = {}) =>
    (await openEvents(client, `/v1/sandboxes/${id}/logs${query}`, { headers })).events;
  const lines = (events: ServerEvent[]) =>
    events.filter(({ event }) => event === 'log').map(({ data }) => `${data.source} ${data.text}`);

  test("show both streams, from the first line to the end of the run, with the engine's times", async () => {
    const id = await runToItsEnd(
      'streams',
      'sleep 1; echo out; echo err >&2; printf "no break"; sleep 1; echo " grüße 🙂"',
    );
    const events = await allEvents(await follow(id));
    expect(events.at(-1)).toEqual({ event: 'end', data: {} });
    const by = (source: string) =>
      events
        .filter(({ data }) => data.source === source)
        .map(({ data }) => data.text)
        .join('');
    expect([by('stdout'), by('stderr')]).toEqual(['out\nno break grüße 🙂\n', 'err\n']);
    for (const { data } of events.slice(0, -1)) {
      expect(data.ts).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$/);
      expect(Math.abs(Date.parse(data.ts) - Date.now())).toBeLessThan(60_000);
    }
    // The log of the stopped sandbox is the same, also in parts.
    await untilStatus(client, id, 'stopped');
    expect(await allEvents(await follow(id))).toEqual(events);
    expect(lines(await allEvents(await follow(id, '?sources=stderr')))).toEqual(['stderr err\n']);
    expect(lines(await allEvents(await follow(id, '?sources=output,system')))).toEqual([]);
    for (const [index, { id: last }] of events.slice(0, -1).entries()) {
      const rest = await allEvents(await follow(id, '', { 'last-event-id': last! }));
      expect(rest).toEqual(events.slice(index + 1));
    }
  });

  test('keep the characters of long lines, and continue after any part of them', async () => {
    const id = await runToItsEnd(
      'long',
      // Lines of 20,000 emoji and 100,000 letters, a line that ends as process 1 ends parts, and bytes that are no
      // text.
      `printf x; yes 🙂 | head -n 20000 | tr -d '\\n'; echo; printf 'a\\037\\n\\037\\n'
       yes a | head -n 100000 | tr -d '\\n'; echo; yes "$(printf '\\200\\377')" | head -n 20000 | tr -d '\\n'; echo END`,
    );
    const events = await allEvents(await follow(id));
    const textOf = (some: ServerEvent[]) =>
      some
        .filter(({ event }) => event === 'log')
        .map(({ data }) => data.text)
        .join('');
    const expected = `x${'🙂'.repeat(20_000)}\na\x1f\n\x1f\n${'a'.repeat(100_000)}\n${'\ufffd'.repeat(40_000)}END\n`;
    expect(textOf(events) === expected).toBe(true);
    expect(events.length).toBeGreaterThan(14);
    for (const [index, { id: last }] of events.slice(0, -1).entries()) {
      const rest = await allEvents(await follow(id, '', { 'last-event-id': last! }));
      expect(rest.length).toBe(events.length - index - 1);
      expect(textOf(rest) === textOf(events.slice(index + 1)), `after event ${index}`).toBe(true);
    }
  });

  test('end when the sandbox is stopped or deleted during a follow', async () => {
    for (const end of ['stop', 'delete']) {
      const id = await run(end, 'echo here; sleep 600');
      const events = await follow(id);
      expect((await events.next()).value).toEqual({ comment: 'following' });
      expect((await events.next()).value.data.text).toBe('here\n');
      if (end === 'stop') await client.post(`/v1/sandboxes/${id}/stop`, {});
      else await client.delete(`/v1/sandboxes/${id}`);
      expect(await allEvents(events)).toEqual([{ event: 'end', data: {} }]);
    }
  });

  test('apply back-pressure to the engine for a slow client, and release it when the client leaves', async () => {
    const id = await run('flood', 'dd if=/dev/zero bs=65536 count=120; sleep 600');
    const asked = followedAtEngine();
    const held = heldMemory();
    const followers = await Promise.all(
      Array.from(
        { length: 5 },
        () =>
          new Promise<IncomingMessage>((resolve, reject) => {
            const headers = { authorization: `Bearer ${client.key}` };
            httpRequest(`${client.url}/v1/sandboxes/${id}/logs`, { headers, agent: false }, resolve)
              .on('error', reject)
              .end();
          }),
      ),
    );
    for (const follower of followers) follower.pause();
    await delay(3_000);
    // Without back-pressure each would buffer all eight megabytes, as six bytes each.
    expect(heldMemory() - held).toBeLessThan(40 * 1024 * 1024);
    expect(asked.size).toBe(5);
    for (const follower of followers) follower.destroy();
    await until(
      () => Promise.resolve(asked.size),
      (count) => count === 0,
    );
  });

  test('are empty for a removed container', async () => {
    const id = await run('gone', 'sleep 600');
    await (await containerOf(id))!.remove({ force: true });
    expect((await allEvents(await follow(id))).at(-1)).toEqual({ event: 'end', data: {} });
  });
});
