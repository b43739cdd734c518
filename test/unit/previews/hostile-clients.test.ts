import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { setImmediate } from 'node:timers/promises';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { readToken } from '../../../src/previews/pages/read-token.js';
import { until as poll } from '../../support/polling.js';
import { exchangeRaw, openRaw } from '../../support/raw-connection.js';
import { httpSandbox, startPreviews, type TestPreviews } from '../../support/previews.js';

const until = (isSo: () => boolean) => poll(() => Promise.resolve(isSo()), Boolean);

let previews: TestPreviews;
let seen: string[];

beforeEach(async () => {
  seen = [];
  const sandbox = httpSandbox((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString()));
    request.on('end', () => {
      seen.push(`${request.method} ${request.url} ${body}`);
      response.end('from the sandbox');
    });
  });
  previews = await startPreviews(sandbox);
});

/** Sends the text, with `HOST` replaced, and returns all that arrives until the connection closes. */
function send(text: string | string[], pauseMs = 0): Promise<string> {
  const parts = [text].flat().map((part) => part.replaceAll('HOST', previews.host));
  return exchangeRaw(`http://127.0.0.1:${previews.port}`, parts, pauseMs);
}

describe('the host of a request', () => {
  it.each([
    ['is missing', 'GET / HTTP/1.1\r\nConnection: close\r\n\r\n', 400],
    ['is missing in HTTP/1.0', 'GET / HTTP/1.0\r\n\r\n', 400],
    ['is there twice', 'GET / HTTP/1.1\r\nHost: HOST\r\nHost: HOST\r\n\r\n', 400],
    ['is followed by another', 'GET / HTTP/1.1\r\nHost: HOST\r\nhOST: 127.0.0.1\r\n\r\n', 400],
    ['is also in the target', 'GET http://HOST/ HTTP/1.1\r\nHost: HOST\r\n\r\n', 400],
    ['differs from that of the target', 'GET http://127.0.0.1/ HTTP/1.1\r\nHost: HOST\r\n\r\n', 400],
    ['has a user', 'GET / HTTP/1.1\r\nHost: user@HOST\r\n\r\n', 421],
    ['has another one after it', 'GET / HTTP/1.1\r\nHost: HOST, HOST\r\n\r\n', 421],
    ['is an address', 'GET / HTTP/1.1\r\nHost: 127.0.0.1:8081\r\n\r\n', 421],
    ['is one of an attacker, by DNS rebinding', 'GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n', 421],
    ['is that of the service', 'GET / HTTP/1.1\r\nHost: localhost:8080\r\n\r\n', 421],
    ['has a final dot', 'GET / HTTP/1.1\r\nHost: DOTTED\r\n\r\n', 421],
    ['is in upper case', 'GET / HTTP/1.1\r\nHost: UPPER\r\n\r\n', 421],
  ])('that %s is refused', async (_case, text, status) => {
    const dotted = previews.host.replace(':', '.:');
    const answer = await send(text.replace('DOTTED', dotted).replace('UPPER', previews.host.toUpperCase()));
    expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(seen).toEqual([]);
  });

  it.each(['CONNECT HOST HTTP/1.1', 'TRACE / HTTP/1.1', 'OPTIONS http://HOST HTTP/1.1'])(
    'is not asked with %s',
    async (line) => {
      expect(await send(`${line}\r\nHost: HOST\r\nConnection: close\r\n\r\n`)).toMatch(
        /^HTTP\/1.1 (400|501) /,
      );
      expect(seen).toEqual([]);
    },
  );
});

/** Behind each of them a second request is hidden, which one of two parsers would see. */
const HIDDEN = 'GET /hidden HTTP/1.1\r\nHost: HOST\r\n\r\n';
const SMUGGLED: [string, string][] = [
  ['a length beside chunks', `Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${HIDDEN}`],
  ['chunks beside a length', `Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n${HIDDEN}`],
  ['two lengths', `Content-Length: 0\r\nContent-Length: 44\r\n\r\n${HIDDEN}`],
  ['two equal lengths', `Content-Length: 0\r\nContent-Length: 0\r\n\r\n`],
  ['a list of lengths', `Content-Length: 0, 44\r\n\r\n${HIDDEN}`],
  ['a length with a sign', `Content-Length: +44\r\n\r\n${HIDDEN}`],
  ['a length in hex', `Content-Length: 0x2c\r\n\r\n${HIDDEN}`],
  ['another coding', `Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n${HIDDEN}`],
  ['a coding after chunks', `Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n${HIDDEN}`],
  ['two codings', `Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${HIDDEN}`],
  ['a coding with a tab', `Transfer-Encoding:\tchunkedx\r\n\r\n0\r\n\r\n${HIDDEN}`],
  ['a space before the colon', `Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n${HIDDEN}`],
  ['a folded line', `Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n${HIDDEN}`],
  ['a folded host', `X: a\r\n Host: 127.0.0.1\r\nContent-Length: 0, 1\r\n\r\n`],
  ['a bare CR', `X: a\rContent-Length: 44\r\n\r\n${HIDDEN}`],
  ['a NUL', `X: a\0b\r\nContent-Length: 0\r\n\r\n`],
  ['a chunk size that overflows', `Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n`],
  ['a chunk size with a sign', `Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n${HIDDEN}`],
  ['a chunk without its end', `Transfer-Encoding: chunked\r\n\r\n1\r\naXX0\r\n\r\n${HIDDEN}`],
  [
    'an upgrade with a body',
    `Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 44\r\n\r\n${HIDDEN}`,
  ],
];

describe('a body whose length two parsers read differently', () => {
  it.each(SMUGGLED)('is refused: %s', async (_case, rest) => {
    const answer = await send(`POST /first HTTP/1.1\r\nHost: HOST\r\n${rest}`);
    expect(answer).toMatch(/^HTTP\/1.1 400 /);
    expect(answer).not.toContain('from the sandbox');
    expect(seen.join()).not.toContain('hidden');
  });

  it('is sent anew, without the extensions of its chunks', async () => {
    const answer = await send(
      'POST / HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n4;a="b"\r\nbody\r\n0\r\n\r\n',
    );
    expect(answer).toContain('from the sandbox');
    expect(seen).toEqual(['POST / body']);
  });

  it.each(['h2c', 'websocket, h2c', 'TLS/1.0', '"odd"'])(
    'stays with an upgrade that is not taken: %s',
    async (offer) => {
      const offering = `Host: ${previews.host}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: ${offer}\r\nHTTP2-Settings: AAMAAABk\r\n`;
      const [first, last] = ['first half, ', 'second half'];
      const { socket, text, isClosed, whole } = await openRaw(`http://127.0.0.1:${previews.port}`);
      socket.write(
        `POST /1 HTTP/1.1\r\n${offering}Content-Length: ${first.length + last.length}\r\n\r\n${first}`,
      );
      await delay(100);
      // A client with such an offer waits for each answer: a further request before it ends the connection.
      for (const [answered, part] of [
        last,
        `POST /2 HTTP/1.1\r\n${offering}Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n`,
        `GET /3 HTTP/1.1\r\n${offering}\r\n`,
        'GET /4 HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n',
      ].entries()) {
        await until(() => isClosed() || text().split('from the sandbox').length === answered + 1);
        socket.write(part.replaceAll('HOST', previews.host));
      }
      const answer = await whole;
      expect(answer.match(/HTTP\/1.1 \d+/g)).toEqual(Array(4).fill('HTTP/1.1 200'));
      expect(seen).toEqual([`POST /1 ${first}${last}`, 'POST /2 body', 'GET /3 ', 'GET /4 ']);
    },
  );

  it('and an upgrade that is not taken leave no listener on a kept connection', async () => {
    const { socket, text } = await openRaw(`http://127.0.0.1:${previews.port}`);
    const warned: Error[] = [];
    const warn = (warning: Error) => void warned.push(warning);
    process.on('warning', warn);
    for (let count = 1; count <= 20; count += 1) {
      socket.write(
        `POST / HTTP/1.1\r\nHost: ${previews.host}\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\nx`,
      );
      await until(() => seen.length === count && text().split('from the sandbox').length === count + 1);
    }
    socket.destroy();
    process.off('warning', warn);
    expect(warned).toEqual([]);
  });

  it('is one request for each head of a pipeline, and each is judged', async () => {
    const answer = await send(
      'GET /1 HTTP/1.1\r\nHost: HOST\r\n\r\nGET /2 HTTP/1.1\r\nHost: HOST\r\nX-Test-Grant: no\r\n\r\nGET /3 HTTP/1.1\r\nHost: evil.example\r\n\r\n',
    );
    expect(answer.match(/HTTP\/1.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 401', 'HTTP/1.1 421']);
    expect(seen).toEqual(['GET /1 ']);
  });
});

describe('a client that wants to use up the service', () => {
  it('has at most 32 KiB of headers, and 200 of them', async () => {
    const bomb = `X-A: ${'a'.repeat(40 * 1024)}\r\n`;
    expect(await send(`GET / HTTP/1.1\r\nHost: HOST\r\n${bomb}\r\n`)).toMatch(/^HTTP\/1.1 431 /);
    const many = Array.from({ length: 201 }, (_, index) => `X-${index}: a\r\n`).join('');
    expect(await send(`GET / HTTP/1.1\r\nHost: HOST\r\n${many}\r\n`)).toMatch(/^HTTP\/1.1 431 /);
    expect(seen).toEqual([]);
  });

  it('has ten seconds for its head', async () => {
    const { socket, whole } = await openRaw(`http://127.0.0.1:${previews.port}`);
    const drip = setInterval(() => socket.write('X: y\r\n'), 1_000);
    socket.write(`GET / HTTP/1.1\r\nHost: ${previews.host}\r\n`);
    expect(await whole).toMatch(/^HTTP\/1.1 408 /);
    clearInterval(drip);
  });

  it('has so many requests in progress, and no more', async () => {
    const held = httpSandbox(() => undefined);
    const bounded = await startPreviews(held, { limits: { ofSandbox: 3 } });
    const sockets: Socket[] = [];
    for (let index = 0; index < 3; index += 1) {
      const socket = connect(bounded.port, '127.0.0.1').on('error', () => undefined);
      socket.write(`GET / HTTP/1.1\r\nHost: ${bounded.host}\r\n\r\n`);
      sockets.push(socket);
    }
    await until(() => bounded.meters.open === 3);
    const url = `http://127.0.0.1:${bounded.port}`;
    const text = `GET / HTTP/1.1\r\nHost: ${bounded.host}\r\nConnection: close\r\n\r\n`;
    expect(await exchangeRaw(url, text)).toMatch(/^HTTP\/1.1 429 [\s\S]*retry-after: 1/);
    for (const socket of sockets) socket.destroy();
    await until(() => bounded.meters.open === 0);
  });

  it('has 32 requests of a pipeline in progress, which end with it', async () => {
    const held = await startPreviews(httpSandbox(() => undefined));
    const { socket } = await openRaw(`http://127.0.0.1:${held.port}`);
    const one = `GET / HTTP/1.1\r\nHost: ${held.host}\r\n\r\n`;
    socket.write(one.repeat(32));
    await until(() => held.meters.open === 32);
    socket.write(one);
    await once(socket, 'close');
    await until(() => held.meters.open === 0);
    expect(held.opened()).toBe(32);
  });

  it('leaves nothing behind when it disappears in the middle of a body', async () => {
    const { socket } = await openRaw(`http://127.0.0.1:${previews.port}`);
    socket.write(`POST / HTTP/1.1\r\nHost: ${previews.host}\r\nContent-Length: 1000\r\n\r\nhalf`);
    await until(() => previews.meters.bytes.in === 4);
    socket.destroy();
    await until(() => previews.meters.open === 0);
    await delay(50);
    expect(seen).toEqual([]);
  });

  it('cannot keep a request for a grant open without its body', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    let begin = () => {};
    const begun = new Promise<void>((resolve) => (begin = resolve));
    const held = await startPreviews(
      httpSandbox(() => undefined),
      {
        serve: async (_host, request) => {
          begin();
          await readToken(request);
        },
      },
    );
    const { socket, isClosed, whole } = await openRaw(`http://127.0.0.1:${held.port}`);
    const type = 'Content-Type: application/json\r\nContent-Length: 20';
    socket.write(`POST /.well-known/sandkeep/grant HTTP/1.1\r\nHost: ${held.host}\r\n${type}\r\n\r\n{`);
    await begun;
    vi.advanceTimersByTime(4_900);
    await setImmediate();
    expect(isClosed()).toBe(false);
    vi.advanceTimersByTime(100);
    await whole;
  });

  it('cannot use the connection of a refused request for a second one', async () => {
    const { socket, whole } = await openRaw(`http://127.0.0.1:${previews.port}`);
    socket.write('GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n');
    await once(socket, 'data');
    socket.write(`GET /late HTTP/1.1\r\nHost: ${previews.host}\r\n\r\n`);
    expect((await whole).match(/HTTP\/1.1 \d+/g)).toEqual(['HTTP/1.1 421']);
    expect(seen).toEqual([]);
  });
});
