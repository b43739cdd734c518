import { once } from 'node:events';
import { createServer as createHttp2Server } from 'node:http2';
import { buffer } from 'node:stream/consumers';
import { setTimeout } from 'node:timers/promises';
import { createServer, type TLSSocket } from 'node:tls';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { identity, listen, openGate, NAME, SECRET } from '../support/interceptor.js';

/** Parts of messages that parsers understand in different ways, and plain bytes. */
const part = fc.oneof(
  fc.constantFrom(
    'HTTP/1.1 200 OK\r\n',
    'HTTP/1.1 101 Switching Protocols\r\n',
    'HTTP/1.1 100 Continue\r\n\r\n',
    'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n',
    'HTTP/1.1 103 Early Hints\r\nLink: x\x01y\r\n\r\n',
    'HTTP/1.1 999 \xe9\r\n',
    'HTTP/1.0 204 No\r\n',
    'Content-Length: 5\r\n',
    'Content-Length: 50000000000000000000\r\n',
    'Content-Type: application/json\r\n',
    'Transfer-Encoding: chunked\r\n',
    'Connection: close\r\n',
    'Connection: Upgrade\r\nUpgrade: x\r\n',
    'Trailer: x\r\n',
    `X: ${SECRET.value}\r\n`,
    'X: \xff\x80\r\n',
    ' folded\r\n',
    '\r\n',
    'hello',
    '5\r\nhello\r\n',
    '0\r\nX: \x80\r\n\r\n',
    'GET / HTTP/1.1\r\n',
    `Host: ${NAME}\r\n`,
    'Expect: 100-continue\r\n',
    'Upgrade: websocket\r\nConnection: Upgrade\r\n',
    `POST /?a=${SECRET.placeholder} HTTP/1.1\r\nHost: ${NAME}\r\n`,
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
  ),
  fc.string({ maxLength: 20, unit: 'binary' }),
);
const message = fc.array(part, { maxLength: 8 }).map((parts) => parts.join(''));

async function exchange(socket: TLSSocket, bytes: string): Promise<void> {
  socket.on('error', () => {});
  socket.write(bytes, 'latin1');
  await Promise.race([buffer(socket).catch(() => undefined), setTimeout(15)]);
  socket.destroy();
}

it('outlives every answer of a server and every request of a client', async () => {
  let next = '';
  const server = createServer(identity(), (socket) => {
    socket.on('error', () => {});
    socket.once(
      'data',
      () => void (Math.random() < 0.5 ? socket.end(next, 'latin1') : socket.write(next, 'latin1')),
    );
  });
  const port = await listen(server);
  const gates = [await openGate({ port }), await openGate({ port, secrets: [SECRET] })];
  await fc.assert(
    fc.asyncProperty(
      message,
      message,
      fc.constantFrom(...gates),
      fc.boolean(),
      async (answer, request, gate, isValid) => {
        next = answer;
        const valid = `GET / HTTP/1.1\r\nHost: ${NAME}\r\nX-Key: ${SECRET.placeholder}\r\n\r\n`;
        await exchange(await gate.tls(), isValid ? valid : request);
      },
    ),
    { numRuns: 120 },
  );
  next = 'HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfine';
  const socket = await gates[1]!.tls();
  socket.write(`GET / HTTP/1.1\r\nHost: ${NAME}\r\n\r\n`);
  expect(String(await buffer(socket))).toMatch(/fine(\r\n0\r\n\r\n)?$/);
});

it('outlives broken frames of HTTP/2, and fields that no answer may have', async () => {
  const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0', 'latin1');
  const frame = fc
    .tuple(fc.nat(10), fc.nat(255), fc.nat(4), fc.uint8Array({ maxLength: 40 }))
    .map(([type, flags, stream, payload]) =>
      Buffer.concat([Buffer.from([0, 0, payload.length, type, flags, 0, 0, 0, stream]), payload]),
    );
  const frames = fc.array(frame, { maxLength: 6 }).map((all) => Buffer.concat(all));
  let next: Buffer = Buffer.alloc(0);
  const raw = createServer({ ...identity(), ALPNProtocols: ['h2'] }, (socket) => {
    socket.on('error', () => {}).resume();
    socket.write(Buffer.concat([preface.subarray(24), next]));
  });
  const gate = await openGate({ port: await listen(raw), protocols: ['h2'], secrets: [SECRET] });
  await fc.assert(
    fc.asyncProperty(frames, frames, async (answer, request) => {
      next = answer;
      // HEADERS of a GET for "/", in the static table: method, scheme, path.
      const get = Buffer.from([0, 0, 3, 1, 5, 0, 0, 0, 1, 0x82, 0x87, 0x84]);
      await exchange(await gate.tls(['h2']), Buffer.concat([preface, get, request]).toString('latin1'));
    }),
    { numRuns: 80 },
  );
  const server = createHttp2Server((_, response) => void response.end('fine'));
  const clear = await openGate({ port: await listen(server), encrypted: false });
  const socket = await clear.tcp();
  socket.write(Buffer.concat([preface, Buffer.from([0, 0, 0, 1, 5, 0, 0, 0, 1])]));
  expect((await once(socket, 'data')).length).toBe(1);
});
