import { connect, type Socket } from 'node:net';

/** A connection without an HTTP client. A reset by the service only closes it. */
export interface RawConnection {
  socket: Socket;
  /** All that has arrived. */
  text(this: void): string;
  isClosed(this: void): boolean;
  /** All that arrived until the connection closed. */
  whole: Promise<string>;
}

/** `localAddress`: of the loopback network. */
export async function openRaw(url: string, localAddress = '127.0.0.1'): Promise<RawConnection> {
  const { hostname, port } = new URL(url);
  let [text, isClosed] = ['', false];
  const socket = connect({ host: hostname, port: Number(port), localAddress });
  socket.on('data', (chunk) => (text += chunk.toString())).on('error', () => undefined);
  const whole = new Promise<string>((resolve) => {
    socket.once('close', () => {
      isClosed = true;
      resolve(text);
    });
  });
  await new Promise((resolve) => socket.once('connect', resolve).once('close', resolve));
  return { socket, text: () => text, isClosed: () => isClosed, whole };
}

/** Sends the parts with pauses, and returns all that arrives until the connection closes. */
export async function exchangeRaw(
  url: string,
  parts: string | readonly string[],
  pauseMs = 0,
): Promise<string> {
  const { socket, whole } = await openRaw(url);
  for (const [index, part] of [parts].flat().entries()) {
    setTimeout(() => socket.writable && socket.write(part), index * pauseMs);
  }
  return whole;
}

/** The head of a request, with the empty line after it. */
export function requestHead(line: string, key: string | null, ...headers: readonly string[]): string {
  const authorization = key === null ? [] : [`authorization: Bearer ${key}`];
  return [`${line} HTTP/1.1`, 'host: x', ...authorization, ...headers, '', ''].join('\r\n');
}

/** The headers that ask for a WebSocket. */
export const WEBSOCKET = [
  'Connection: Upgrade',
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
];
