import { Buffer } from 'node:buffer';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { expect, onTestFinished, test } from 'vitest';
import { connectAgent } from '../../../src/engines/microvm/agent-session.js';
import { HANDSHAKE, LIMIT } from '../../../src/guest/protocol.js';
import { makeFolder } from '../../support/microvm/runs.js';

const MIB = 1024 ** 2;
/** The most that is dropped before the answer of the machine, and the buffers of the two sockets. */
const MOST_BYTES = 24 * MIB;
const zeros = Buffer.alloc(64 * 1024);
const DEFAULTS = { env: [], cwd: '/' };

/** A port that sends `first`, and then zeros for as long as they are read. `sent`: the bytes of zeros so far. */
async function floodedPort(first: (key: Buffer) => Buffer) {
  let sent = 0;
  function* flood(hello: Buffer) {
    const at = HANDSHAKE.hello.length;
    yield first(hello.subarray(at, at + LIMIT.sessionKey));
    for (;;) {
      sent += zeros.length;
      yield zeros;
    }
  }
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', (hello: Buffer) => Readable.from(flood(hello)).pipe(socket));
  });
  const path = join(makeFolder(), 'agent.sock');
  server.listen(path);
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return { path, sent: () => sent };
}

test('a machine that floods the port before its answer is given up after a bound of bytes', async () => {
  const { path, sent } = await floodedPort(() => Buffer.alloc(0));
  await expect(connectAgent(path, DEFAULTS)).rejects.toThrow('gives no answer on the port of the agent');
  expect(sent()).toBeLessThanOrEqual(MOST_BYTES);
});

test('a machine that floods the port behind its answer is given up after a bound of bytes', async () => {
  const { path, sent } = await floodedPort((key) => Buffer.concat([Buffer.from(HANDSHAKE.welcome), key]));
  await expect(connectAgent(path, DEFAULTS)).rejects.toThrow('the agent ended before it was ready');
  expect(sent()).toBeLessThanOrEqual(MOST_BYTES);
});
