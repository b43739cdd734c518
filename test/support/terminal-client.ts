import { TLSSocket } from 'node:tls';
import { expect } from 'vitest';
import { WebSocket } from 'ws';
import { until } from './polling.js';

/** A terminal, as a browser sees it. */
export interface Terminal {
  socket: WebSocket;
  /** The output so far. */
  text(): string;
  /** The text messages so far. */
  messages: any[];
  closed: Promise<number>;
  /** The serial number of the certificate of the connection; undefined without TLS. */
  serial: string | undefined;
}

export interface Way {
  origin?: string;
  /** The authority of the certificate, in PEM. */
  ca?: string;
}

/** `url`: of the service. */
export function dialTerminal(url: string, sandboxId: string, ticket: string, way: Way = {}): WebSocket {
  const address = `${url.replace('http', 'ws')}/v1/sandboxes/${sandboxId}/terminal`;
  return new WebSocket(address, ['sandkeep.terminal.v1', `ticket.${ticket}`], { ...way });
}

/** The status of the handshake: 101 for an open terminal. */
export function statusOf(socket: WebSocket): Promise<number> {
  return new Promise((resolve) => {
    socket.on('unexpected-response', (_, { statusCode }) => resolve(statusCode!));
    socket.on('open', () => resolve(101));
    socket.on('error', () => undefined);
  });
}

export async function openTerminal(socket: WebSocket): Promise<Terminal> {
  const parts: Buffer[] = [];
  const messages: any[] = [];
  let serial: string | undefined;
  socket.on('message', (data: Buffer, isBinary) => {
    if (isBinary) parts.push(data);
    else messages.push(JSON.parse(data.toString()));
  });
  socket.on('upgrade', ({ socket: connection }) => {
    if (connection instanceof TLSSocket) serial = connection.getPeerCertificate().serialNumber;
  });
  const closed = new Promise<number>((resolve) => socket.on('close', (code) => resolve(code)));
  expect(await statusOf(socket)).toBe(101);
  expect(socket.protocol).toBe('sandkeep.terminal.v1');
  return { socket, text: () => Buffer.concat(parts).toString(), messages, closed, serial };
}

export function shows(terminal: Terminal, part: string): Promise<string> {
  return until(
    async () => terminal.text(),
    (text) => text.includes(part),
    30_000,
  );
}
