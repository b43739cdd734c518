import type { Buffer } from 'node:buffer';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import type { Guest } from '../../src/guest/guest.js';
import { openGuestStream, PortRefusedError } from '../../src/sandboxes/ports/guest-stream.js';

/** Connects on this machine. The kernel of a Docker sandbox has no IPv6 for such a test. */
const guest: Pick<Guest, 'connect'> = {
  connect(address, port, listener) {
    const socket = connect({ host: address, port, allowHalfOpen: true });
    let failure: string | null = null;
    socket.on('connect', () => listener.connected());
    socket.on('data', (data) => listener.data(data));
    socket.on('end', () => listener.ended());
    socket.on('error', (error: NodeJS.ErrnoException) => {
      failure = error.code === 'ECONNREFUSED' ? 'Connection refused' : error.message;
    });
    socket.on('close', () => listener.closed(failure));
    return {
      write: async (data: Buffer) => void socket.write(data),
      end: () => void socket.end(),
      grant: () => undefined,
      close: () => void socket.destroy(),
    };
  },
};

test('a stream finds a server that listens on the IPv6 loopback address only', async () => {
  const server = createServer((socket) => socket.end('six'));
  await once(server.listen({ host: '::1', port: 0 }), 'listening');
  const { port } = server.address() as AddressInfo;
  const options = { port, signal: new AbortController().signal, touch: () => undefined };
  const stream = await openGuestStream(guest as Guest, options);
  expect(await text(stream)).toBe('six');
  stream.end();
  server.close();
  await once(server, 'close');
  await expect(openGuestStream(guest as Guest, options)).rejects.toBeInstanceOf(PortRefusedError);
});
