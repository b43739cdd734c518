import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, request as httpRequest, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { FULL_ACCESS, type Access } from '../../../src/access/access.js';
import { operator } from '../../../src/audit/events/actor.js';
import { KEY_WINDOW_SECS } from '../../../src/access/rate-limit.js';
import { FORWARDED_HEADER } from '../../../src/http/forwarded.js';
import { createKey } from '../../../src/keys/create.js';
import { makeClient, type Client } from '../../support/client.js';
import { insertWorker } from '../../support/insert-worker.js';
import { describeDocker } from '../../support/docker.js';
import { allEvents, nextEvent, openEvents } from '../../support/event-stream.js';
import { freePort } from '../../support/free-port.js';
import { startInside, type Inside } from '../../support/inside.js';
import { until, untilStatus } from '../../support/polling.js';
import { filesIn } from '../../support/sandbox-files.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

const running = { start: true, wait_for: 'running' };

let front: TestService;
let back: TestService;
let client: Client;
/** A sandbox on the engine of `back`. */
let id: string;

beforeAll(async () => {
  front = await startTestService({ worker: false, settings: { logKeepAliveMs: 100 } });
  // Two followers in all, one of each organization.
  back = await startTestService({ beside: front, settings: { logKeepAliveMs: 100, maxLogFollowers: 2 } });
  client = await front.newOrg();
  const { body } = await client.post('/v1/sandboxes', smallRequest('far'), running);
  expect(body.status).toBe('running');
  id = body.id;
});
afterAll(async () => {
  await back.close();
  await front.close();
});

const logsOf = (sandboxId: string) => `/v1/sandboxes/${sandboxId}/logs`;

async function keyWith(access: Partial<Access>): Promise<string> {
  const made = await createKey(front.ctx.pool, client.org.id, 'some', operator('test'), {
    ...FULL_ACCESS,
    ...access,
  });
  return made.key;
}

/** A request from a chosen address of this machine. */
async function ask(
  url: string,
  path: string,
  { key = client.key, localAddress = '127.0.0.1', headers = {} } = {},
): Promise<{ status: number; headers: IncomingMessage['headers']; text: string }> {
  const request = httpRequest(`${url}${path}`, {
    localAddress,
    agent: false,
    headers: { authorization: `Bearer ${key}`, ...headers },
  }).end();
  const [answer] = (await once(request, 'response')) as [IncomingMessage];
  let text = '';
  for await (const chunk of answer) {
    text += String(chunk);
    // A log goes on.
    if (text.startsWith(': following')) break;
  }
  request.destroy();
  return { status: answer.statusCode!, headers: answer.headers, text };
}

/** The same for a log, whose slot the follower before may still hold. */
function askForLog(...asked: Parameters<typeof ask>): ReturnType<typeof ask> {
  return until(
    () => ask(...asked),
    ({ status }) => status !== 429,
  );
}

function followLog(...opened: Parameters<typeof openEvents>): ReturnType<typeof openEvents> {
  return until(
    () => openEvents(...opened),
    ({ response }) => response.status !== 429,
  );
}

function sealed(
  url: string,
  from: string,
  { target = back.runtime.engineId, key = client.key, at = Date.now() } = {},
) {
  const message = { method: 'GET', url, headers: { authorization: `Bearer ${key}` } };
  return { [FORWARDED_HEADER]: front.ctx.peer.seal.seal(message as IncomingMessage, from, target, at) };
}

describe('the log of a sandbox on the engine of another process', () => {
  test('is followed to its end through this one, by id and by name', async () => {
    const { body } = await client.post('/v1/sandboxes', smallRequest('ends'), running);
    for (const path of [logsOf(body.id), '/v1/sandboxes/by-name/ends/logs']) {
      const { response, events } = await followLog(client, `${path}?sources=system`);
      expect(Object.fromEntries(response.headers)).toMatchObject({
        'content-type': 'text/event-stream',
        'cache-control': 'no-store, no-transform',
        'x-request-id': expect.any(String),
        ratelimit: expect.stringContaining('"key"'),
      });
      expect((await events.next()).value).toEqual({ comment: 'following' });
      expect((await nextEvent(events)).data.source).toBe('system');
      expect((await events.next()).value).toEqual({ comment: 'nothing new' });
      await events.return(undefined);
    }
    const { events } = await followLog(client, logsOf(body.id));
    await events.next();
    await client.post(`/v1/sandboxes/${body.id}/stop`, {});
    expect(await allEvents(events)).toEqual([{ event: 'end', data: {} }]);
  });

  test('is asked for under the same request id, and counted once', async () => {
    // The counts begin again with each window, so all of them must be of one.
    const { counts } = await until(
      async () => {
        const key = await keyWith({});
        const left = async (url: string, path: string) =>
          Number(/;r=(\d+);/.exec(String((await ask(url, path, { key })).headers['ratelimit']))?.[1]);
        const begun = performance.now();
        const before = await left(back.url, '/v1/sandboxes');
        const first = await left(front.url, logsOf(id));
        const second = await left(front.url, logsOf(id));
        const after = await left(back.url, '/v1/sandboxes');
        return { counts: { before, first, second, after }, millis: performance.now() - begun };
      },
      ({ millis }) => millis < KEY_WINDOW_SECS * 1_000,
    );
    expect(counts.second).toBe(counts.first - 1);
    expect(counts.after).toBe(counts.before - 1);
    const path = `${logsOf(id)}?sources=none`;
    const { status, headers } = await ask(front.url, path, { headers: { 'x-request-id': 'mine-1' } });
    expect([status, headers['x-request-id']]).toEqual([400, 'mine-1']);
    await until(
      async () => [front, back].map(({ logs }) => logs.some((line) => line.includes('"mine-1"'))),
      (seen) => seen.every(Boolean),
    );
  });

  test('frees its slot on the other process when the client leaves', async () => {
    const open = (signal: AbortSignal) => openEvents(client, logsOf(id), { signal });
    for (let round = 0; round < 3; round += 1) {
      const leave = new AbortController();
      const first = await until(
        () => open(leave.signal),
        ({ response }) => response.status === 200,
      );
      expect((await open(leave.signal)).response.status).toBe(429);
      expect((await first.events.next()).value).toEqual({ comment: 'following' });
      leave.abort();
    }
  });

  test('ends when the key is revoked', async () => {
    const { body: made } = await client.post('/v1/keys', { name: 'short', scopes: ['sandboxes:read'] });
    const { events } = await followLog({ ...client, key: made.key }, logsOf(id));
    await events.next();
    await client.delete(`/v1/keys/${made.id}`);
    expect(await allEvents(events).catch(() => [])).toEqual([]);
  });
});

describe('a key narrowed to a network', () => {
  test('is judged by the address of the client, not by that of the process that forwards', async () => {
    const key = await keyWith({ cidrs: ['127.0.0.2/32'] });
    const near = await askForLog(front.url, logsOf(id), { key, localAddress: '127.0.0.2' });
    expect([near.status, near.text]).toEqual([200, expect.stringContaining('following')]);
    expect((await ask(front.url, logsOf(id), { key })).status).toBe(403);
    // The other process checks the address itself.
    for (const [from, status] of [
      ['127.0.0.2', 200],
      ['10.0.0.1', 403],
      ['', 403],
    ] as const) {
      const headers = sealed(logsOf(id), from, { key });
      expect((await askForLog(back.url, logsOf(id), { key, headers })).status).toBe(status);
    }
  });
});

describe('the header of a forwarded request', () => {
  test('is refused when it is forged, or sealed for another request', async () => {
    const key = await keyWith({ cidrs: ['10.0.0.0/8'] });
    const path = logsOf(id);
    const good = sealed(path, '10.0.0.1', { key })[FORWARDED_HEADER];
    const [at, address, mac] = good.split('.') as [string, string, string];
    const other = Buffer.from('10.0.0.2').toString('base64url');
    const forged = [
      '',
      '1',
      '10.0.0.1',
      `${at}.${address}.`,
      `${at}.${other}.${mac}`,
      `${Number(at) + 1}.${address}.${mac}`,
      `${at}.${address}.${'A'.repeat(43)}`,
      `${good}, ${good}`,
      `${good}=`,
      sealed(`${path}?sources=stdout`, '10.0.0.1', { key })[FORWARDED_HEADER],
      sealed(path, '10.0.0.1')[FORWARDED_HEADER],
      sealed(path, '10.0.0.1', { key, target: front.runtime.engineId })[FORWARDED_HEADER],
    ];
    for (const header of forged) {
      const answer = await ask(back.url, path, { key, headers: { [FORWARDED_HEADER]: header } });
      expect([header, answer.status, JSON.parse(answer.text).error.code]).toEqual([
        header,
        400,
        'invalid_request',
      ]);
    }
    const accepted = await askForLog(back.url, path, { key, headers: { [FORWARDED_HEADER]: good } });
    expect(accepted.status).toBe(200);
    // It does not stand for a key.
    const nobody = sealed(path, '10.0.0.1', { key: 'skp_nobody' });
    expect((await ask(back.url, path, { key: 'skp_nobody', headers: nobody })).status).toBe(401);
  });

  test('is refused half a minute later', async () => {
    for (const lead of [-31_000, 32_000]) {
      // A header from the future has become valid where the other process reads it two seconds late.
      const answer = await until(
        () =>
          ask(back.url, logsOf(id), { headers: sealed(logsOf(id), '127.0.0.1', { at: Date.now() + lead }) }),
        ({ status }) => status === 503,
      );
      expect(answer.headers['retry-after']).toBe('5');
    }
    const lines = back.logs.filter((line) => line.includes('compare the clocks'));
    expect(lines.length).toBeGreaterThan(0);
  });

  test('ends the way of a request: a forwarded request is not forwarded again', async () => {
    const headers = sealed(logsOf(id), '127.0.0.1', { target: front.runtime.engineId });
    const answer = await ask(front.url, logsOf(id), { headers });
    expect([answer.status, answer.headers['retry-after']]).toEqual([503, '1']);
    expect(JSON.parse(answer.text).error.message).toContain('moving to another worker');
  });
});

describe('a worker that cannot be reached', () => {
  let away: string;
  let far: string;
  beforeAll(async () => {
    far = (await client.post('/v1/sandboxes', smallRequest('stranded'), running)).body.id;
    await until(
      async () => front.ctx.pool.query('select from workers'),
      ({ rowCount }) => rowCount === 1,
    );
    away = await insertWorker(front.ctx.pool, { runtime: 'elsewhere', aliveSeconds: 3_600 });
    await untilStatus(client, far, 'running');
    await front.ctx.pool.query('update sandboxes set worker_id = $1, runtime = $2 where id = $3', [
      away,
      'elsewhere',
      far,
    ]);
  });
  const put = (address: string | null, place: string | null = null) =>
    front.ctx.pool.query('update workers set address = $2, address_place = $3 where id = $1', [
      away,
      address,
      place,
    ]);
  async function serveFake(handler: (server: Server) => void): Promise<{ url: string; close: () => void }> {
    const server = createServer();
    handler(server);
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    return { url, close: () => server.close() };
  }
  async function refusal(): Promise<{ status: number; retry: string | undefined; message: string }> {
    const { status, headers, text } = await ask(front.url, logsOf(far));
    return { status, retry: headers['retry-after'], message: JSON.parse(text).error.message };
  }

  test('without an address is reported as away', async () => {
    expect(await refusal()).toMatchObject({
      status: 503,
      retry: '1',
      message: expect.stringMatching(/worker of the sandbox is away/),
    });
  });

  test('on another machine without an advertised address needs the option', async () => {
    await put('http://127.0.0.1:9', 'another-machine');
    expect(await refusal()).toMatchObject({ status: 501, message: expect.stringMatching(/--advertise-url/) });
  });

  test('that is gone gets 503, and only the log has its address', async () => {
    const url = `http://127.0.0.1:${await freePort()}`;
    await put(url);
    const { status, retry, message } = await refusal();
    expect([status, retry]).toEqual([503, '1']);
    expect(message).not.toMatch(/\d|ECONN/);
    const line = front.logs.find((text) => text.includes('could not be forwarded') && text.includes(url));
    expect(line).toContain('ECONNREFUSED');
  });

  test('that ends before its answer gets 503', async () => {
    const fake = await serveFake((server) => server.on('request', ({ socket }) => socket.destroy()));
    await put(fake.url);
    expect(await refusal()).toMatchObject({ status: 503, retry: '1' });
    fake.close();
  });

  test('that ends in the middle of its answer cuts off the client', async () => {
    let cut: () => void = () => undefined;
    const fake = await serveFake((server) =>
      server.on('request', ({ socket }, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' }).write(': following\n\n');
        cut = () => socket.destroy();
      }),
    );
    await put(fake.url);
    const { events } = await openEvents(client, logsOf(far));
    expect((await events.next()).value).toEqual({ comment: 'following' });
    cut();
    expect(await allEvents(events).catch(() => [])).toEqual([]);
    fake.close();
  });

  test('whose lease has expired is reported as away', async () => {
    await put('http://127.0.0.1:9');
    await front.ctx.pool.query("update workers set expires_at = now() - interval '1 second' where id = $1", [
      away,
    ]);
    expect(await refusal()).toMatchObject({
      status: 503,
      message: expect.stringMatching(/worker of the sandbox is away/),
    });
  });
});

describeDocker('a sandbox on the Docker engine of another process', () => {
  let inside: Inside;
  let other: TestService;
  /** Sends its requests to the process without the engine. */
  let far: Client;
  let box: string;
  beforeAll(async () => {
    inside = await startInside();
    other = await startTestService({ beside: inside.service, worker: false });
    const { org, key, keyId } = inside.client;
    far = makeClient(other.url, { org, key, keyId });
    box = await inside.start('box');
  });
  afterAll(async () => {
    await other.close();
    await inside.close();
  });

  test('runs commands, with the whole output at once or as events', async () => {
    const path = `/v1/sandboxes/${box}/exec`;
    const command = { cmd: 'sh', args: ['-c', 'cat; echo err >&2; exit 3'], stdin: 'in' };
    const { body } = await far.post(path, command);
    expect(body).toMatchObject({ exit_code: 3, stdout: 'in', stderr: 'err\n' });
    const { response, events } = await openEvents(far, path, { body: command });
    expect(response.headers.get('content-type')).toBe('text/event-stream');
    const all = await allEvents(events);
    expect(all.find(({ event }) => event === 'stdout')?.data).toEqual({ text: 'in' });
    expect(all.at(-1)).toMatchObject({ event: 'exited', data: { exit_code: 3 } });
  });

  test('takes and gives back a file without a change', async () => {
    const content = randomBytes(1024 * 1024);
    const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
    const files = filesIn(far, box);
    expect((await files.put('/srv/blob', content)).status).toBe(200);
    for (const from of [files, filesIn(inside.client, box)]) {
      const back = Buffer.from(await (await from.get('/srv/blob')).arrayBuffer());
      expect(sha256(back)).toBe(sha256(content));
    }
  });

  test('opens a terminal once for each ticket, whichever process made it, for pages of its own host', async () => {
    const near = inside.client;
    for (const [maker, opener] of [
      [near, far],
      [far, near],
      [far, far],
    ] as const) {
      const { body } = await maker.post(`/v1/sandboxes/${box}/terminal-tickets`, {});
      const dial = (by: Client, origin: string) => {
        const url = `${by.url.replace('http', 'ws')}${body.path}`;
        return new WebSocket(url, ['sandkeep.terminal.v1', `ticket.${body.ticket}`], { origin });
      };
      const refusal = (by: Client, origin: string) =>
        new Promise((resolve) => {
          const socket = dial(by, origin).on('error', () => undefined);
          socket.on('unexpected-response', (_, { statusCode }) => resolve(statusCode));
          socket.on('open', () => resolve('opened'));
          socket.on('close', () => resolve('closed'));
        });
      const elsewhere = opener === far ? near : far;
      expect(await refusal(opener, 'https://evil.example.com')).toBe(403);
      expect(await refusal(opener, elsewhere.url)).toBe(403);
      const socket = dial(opener, opener.url);
      let text = '';
      socket.on('message', (data: Buffer, isBinary) => (text += isBinary ? String(data) : ''));
      await once(socket, 'open');
      socket.send(Buffer.from('echo $((6 * 7)); exit\n'));
      expect((await once(socket, 'close'))[0]).toBe(1000);
      expect(text).toContain('42\r\n');
      for (const by of [near, far]) expect(await refusal(by, by.url)).toBe(401);
    }
  });
});
