import { once } from 'node:events';
import { Agent, createServer, request, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import { dropBody } from '../../src/http/drop-body.js';

const MIB = 1024 * 1024;
/** Node reads 64 KiB at once, and may have one more such piece in its buffer. */
const MOST_OF_ITERATION = 256 * 1024;

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close().closeAllConnections();
});

test('the rest of a refused body is read in small pieces, and the connection serves the next request', async () => {
  let [received, most] = [0, 0];
  const bodies: IncomingMessage[] = [];
  const port = await listen((refused) => {
    bodies.push(refused);
    dropBody(refused);
  });
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const answered = send(port, agent, Buffer.alloc(8 * MIB));
  while (bodies[0]?.complete !== true) {
    const now = bodies[0]?.socket.bytesRead ?? 0;
    most = Math.max(most, now - received);
    received = now;
    await nextTurn();
  }
  expect(await answered).toBe(413);
  expect(received).toBeGreaterThan(7 * MIB);
  expect(most).toBeLessThanOrEqual(MOST_OF_ITERATION);
  expect(await send(port, agent, Buffer.from('{}'))).toBe(413);
  expect(bodies[1]?.socket).toBe(bodies[0].socket);
  agent.destroy();
});

async function listen(onRequest: (body: IncomingMessage) => void): Promise<number> {
  const server = createServer((refused, response) => {
    onRequest(refused);
    response.writeHead(413).end();
  }).listen(0, '127.0.0.1');
  servers.push(server);
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

async function send(port: number, agent: Agent, body: Buffer): Promise<number> {
  const sent = request({ port, agent, method: 'POST', headers: { 'content-length': body.length } });
  sent.end(body);
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  response.resume();
  await once(response, 'end');
  return response.statusCode!;
}
