import { createServer } from 'node:http';
import { performServerHandshake } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import type { Connection } from './connection.js';
import { refusalHeaders, refusalText, type Refusal } from './refusal.js';

/** The longest time for a request, which gets no other answer. */
const REQUEST_MS = 10_000;

/**
 * Answers the requests of a client with the reason why no server was reached. A server with a wrong certificate would
 * else look like a fault of the gateway.
 */
export function answerWithoutServer(client: TLSSocket, connection: Connection, error: Error): void {
  const { name } = connection.to;
  const refusal: Refusal = {
    status: 502,
    code: 'upstream_failed',
    message: `the TLS connection to ${name} failed: ${error.message}`,
    domain: name,
  };
  const text = refusalText(refusal);
  client.setTimeout(REQUEST_MS, () => client.destroy());
  if (client.alpnProtocol === 'h2') {
    const session = performServerHandshake(client);
    session.on('error', () => {});
    session.on('stream', (stream) => {
      stream.on('error', () => {});
      stream.respond({ ':status': refusal.status, 'content-type': 'application/json' });
      stream.end(text);
      session.close();
    });
    return;
  }
  const server = createServer((request, response) => {
    request.resume();
    response.shouldKeepAlive = false;
    response.writeHead(refusal.status, refusalHeaders(text));
    response.end(text);
  });
  server.emit('connection', client);
}
