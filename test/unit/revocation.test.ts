import Fastify from 'fastify';
import { once } from 'node:events';
import { connect, type AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { makeRevocationWatch } from '../../src/access/revocation-watch.js';
import { makeLog } from '../../src/lib/log.js';
import { until } from '../support/polling.js';

test('an answer whose client left before it was watched is not checked', async () => {
  const open = makeRevocationWatch({ log: makeLog('silent', { write: () => undefined }) });
  const app = Fastify();
  let looks = 0;
  const watched = new Promise<void>((resolve) => {
    app.get('/', async (request, reply) => {
      socket.destroy();
      await once(request.raw.socket, 'close');
      open.watch(reply, () => Promise.resolve((looks += 1) > 0));
      resolve();
    });
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  const socket = connect((app.server.address() as AddressInfo).port, '127.0.0.1');
  socket.write('GET / HTTP/1.1\r\nhost: test\r\n\r\n');
  await watched;
  await delay(1_200);
  expect(looks).toBe(0);
  open.close();
  await app.close();
});

test('an answer queued on a connection whose client left is not checked forever', async () => {
  const open = makeRevocationWatch({ log: makeLog('silent', { write: () => undefined }) });
  const app = Fastify();
  let looks = 0;
  let watched = 0;
  app.get('/', (_request, reply) => {
    open.watch(reply, () => Promise.resolve((looks += 1) > 0));
    watched += 1;
    // The first answer never ends, so the queued ones have no socket.
    reply.hijack();
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  const socket = connect((app.server.address() as AddressInfo).port, '127.0.0.1');
  socket.write('GET / HTTP/1.1\r\nhost: test\r\n\r\n'.repeat(5));
  await until(
    () => Promise.resolve(watched),
    (count) => count === 5,
  );
  socket.destroy();
  // A check runs every second until the service notices that the client left.
  const more = await until(
    async () => {
      const before = looks;
      await delay(1_500);
      return looks - before;
    },
    (count) => count === 0,
  );
  expect(more).toBe(0);
  open.close();
  await app.close();
});

test('an answer is cut off whatever the result of other checks', async () => {
  const open = makeRevocationWatch({ log: makeLog('silent', { write: () => undefined }) });
  const app = Fastify();
  const looks: (() => Promise<boolean>)[] = [
    () => new Promise<never>(() => undefined),
    () => Promise.reject(new Error('not now')),
    () => Promise.resolve(true),
    () => Promise.resolve(false),
  ];
  app.get('/:index', (request, reply) => {
    open.watch(reply, looks[Number((request.params as { index: string }).index)]!);
    reply.hijack();
  });
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  const over: number[] = [];
  const asked = looks.map((_, index) =>
    fetch(`${url}/${index}`).catch(() => {
      over.push(index);
    }),
  );
  await asked[3];
  expect(over).toEqual([3]);
  open.close();
  app.server.closeAllConnections();
  await Promise.all(asked);
  await app.close();
});
