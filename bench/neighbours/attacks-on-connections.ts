import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { connect, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { makeKey } from '../../src/access/key-secret.js';
import type { Attack, Attacker } from './attack.js';
import { specOf } from './usual-work.js';

const IDLE_CONNECTIONS = 4_000;
const STREAMS = 400;

export const ATTACKS_ON_CONNECTIONS = {
  connections: {
    text: `holds ${IDLE_CONNECTIONS} idle connections`,
    run: (attacker) => holdConnections(attacker, ''),
  },
  headers: {
    text: `holds ${IDLE_CONNECTIONS} connections with half a header`,
    run: (attacker) => holdConnections(attacker, 'GET /v1/sandboxes HTTP/1.1\r\nhost: x\r\nx-slow: '),
  },
  bodies: {
    text: `holds ${IDLE_CONNECTIONS} connections with half a body`,
    run: (attacker) =>
      holdConnections(
        attacker,
        `POST /v1/sandboxes HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${attacker.client.key}\r\n` +
          'content-type: application/json\r\ncontent-length: 60000\r\n\r\n{"name":"',
      ),
  },
  guesses: {
    text: 'guesses keys on 200 connections',
    async run(attacker) {
      attacker.begin();
      await attacker.flood(200, () =>
        attacker.client.call('GET', '/v1/sandboxes', {
          signal: attacker.signal,
          headers: { authorization: `Bearer ${makeKey()}` },
        }),
      );
    },
  },
  streams: {
    text: `follows its events on ${STREAMS} connections while it makes events`,
    async run(attacker) {
      const open = async () => {
        const response = await attacker.client
          .open('GET', '/v1/events/stream', { signal: attacker.signal })
          .catch(() => undefined);
        attacker.note(response?.statusCode ?? 'no answer');
        response?.on('error', () => undefined).resume();
      };
      await Promise.all(Array.from({ length: STREAMS }, open));
      attacker.begin();
      await attacker.flood(8, () => attacker.call('POST', '/v1/sandboxes', specOf(attacker.image, ['true'])));
    },
  },
  receivers: {
    text: 'has webhooks to receivers that never answer',
    async run(attacker) {
      const silent = createServer((socket) => socket.on('error', () => undefined)).listen(0, '127.0.0.1');
      await once(silent, 'listening');
      const { port } = silent.address() as AddressInfo;
      for (let index = 0; index < 20; index += 1) {
        const { status } = await attacker.call('POST', '/v1/webhooks', {
          url: `http://127.0.0.1:${port}/${index}`,
        });
        attacker.note(status);
      }
      attacker.begin();
      await attacker.flood(4, () => attacker.call('POST', '/v1/sandboxes', specOf(attacker.image, ['true'])));
      silent.close();
    },
  },
} satisfies Record<string, Attack>;

/** Opens connections that send the text and no more, and replaces those that end. */
async function holdConnections(attacker: Attacker, text: string): Promise<void> {
  const { hostname, port } = new URL(attacker.client.address);
  const open = new Set<Socket>();
  let begun = false;
  while (!attacker.signal.aborted) {
    for (let more = Math.min(200, IDLE_CONNECTIONS - open.size); more > 0; more -= 1) {
      const socket = connect(Number(port), hostname);
      open.add(socket);
      socket.on('error', () => undefined).resume();
      socket.once('connect', () => {
        attacker.note('opened');
        socket.write(text);
      });
      socket.once('close', () => {
        attacker.note('closed');
        open.delete(socket);
      });
    }
    await pause(20);
    if (!begun && open.size >= IDLE_CONNECTIONS / 2) {
      begun = true;
      attacker.begin();
    }
  }
  for (const socket of open) socket.destroy();
}
