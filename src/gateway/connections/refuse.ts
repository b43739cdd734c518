import type { Socket } from 'node:net';
import { reset } from './splice.js';

const CODE = 'network_policy_denied';
/** A client that still sends gets so long to read the answer. */
const LINGER_MS = 2_000;

/** Tells a client of HTTP why, in words and with the domain. */
export function refuseRequest(
  socket: Socket,
  { name, reason }: { name: string | undefined; reason: string },
): void {
  const message = `the network policy of the sandbox refuses this connection: ${reason}`;
  const body = JSON.stringify({ code: CODE, message, domain: name ?? null });
  const head = [
    'HTTP/1.1 403 Forbidden',
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
  // A close with unread bytes would be a reset, which may overtake the answer.
  socket.on('data', () => {}).resume();
  const timer = setTimeout(() => reset(socket), LINGER_MS);
  socket.on('end', () => socket.destroy()).on('close', () => clearTimeout(timer));
}
