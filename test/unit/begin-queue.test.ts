import { EventEmitter, once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { BeginQueue } from '../../src/http/begin-queue.js';

function spin(millis: number): void {
  const until = performance.now() + millis;
  while (performance.now() < until);
}

interface Fake {
  key: string;
  name: string;
  socket: { destroyed: boolean };
}
const requestOf = (name: string): Fake => ({ key: name[0]!, name, socket: { destroyed: false } });

/** A queue before a server that notes the names of its requests, each of which takes long. */
function watched(limits?: { total: number; each: number }) {
  const begun: string[] = [];
  const server = new EventEmitter();
  server.on('request', ({ name }: Fake) => {
    begun.push(name);
    spin(2);
  });
  const keyOf = (request: IncomingMessage) => (request as unknown as Fake).key;
  new BeginQueue(keyOf, limits).watch(server as Server);
  const send = (...requests: Fake[]) => requests.forEach((request) => server.emit('request', request));
  const untilBegun = async (count: number) => {
    while (begun.length < count) await turn();
    return begun;
  };
  return { send, begun, untilBegun };
}

test('requests of one owner begin in their order, in turns with those of another', async () => {
  const { send, untilBegun } = watched();
  send(...['a1', 'a2', 'a3', 'a4', 'b1', 'b2'].map(requestOf));
  expect(await untilBegun(6)).toEqual(['a1', 'a2', 'b1', 'a3', 'b2', 'a4']);
});

test('a request whose connection closes while it waits does not begin', async () => {
  const { send, untilBegun } = watched();
  const [first, closed, last] = ['a1', 'a2', 'a3'].map(requestOf);
  send(first!, closed!, last!);
  closed!.socket.destroyed = true;
  expect(await untilBegun(2)).toEqual(['a1', 'a3']);
});

test('a request beyond the limit of its owner, or of all owners, begins at once', async () => {
  const { send, begun, untilBegun } = watched({ total: 3, each: 2 });
  send(...['a1', 'a2', 'a3', 'a4'].map(requestOf));
  expect(begun).toEqual(['a1', 'a4']);
  send(...['b1', 'b2'].map(requestOf));
  expect(begun).toEqual(['a1', 'a4', 'b2']);
  expect((await untilBegun(6)).slice(3).toSorted()).toEqual(['a2', 'a3', 'b1']);
});

test('a connection behind a burst of others is accepted before their requests have begun', async () => {
  const begun: string[] = [];
  const server = createServer((request, response) => {
    begun.push(request.url!);
    spin(2);
    response.end();
  });
  new BeginQueue(({ url }) => url!).watch(server);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const ask = (path: string) => {
    const socket = connect(port, '127.0.0.1').resume();
    socket.write(`GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`);
    return socket;
  };
  const sockets = [...Array.from({ length: 300 }, () => ask('/burst')), ask('/behind')];
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  await once(sockets.at(-1)!, 'data');
  // Without the queue it is the last one.
  expect(begun.indexOf('/behind')).toBeLessThan(200);
});
