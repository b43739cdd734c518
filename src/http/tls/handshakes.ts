import { constants } from 'node:crypto';
import type { Server } from 'node:http';
import type { Http2Server } from 'node:http2';
import type { Socket } from 'node:net';
import { createServer, TLSSocket, type SecureContextOptions } from 'node:tls';
import { carry, peerOf, UNIX_PEER } from '../client-address.js';
import { isInner } from '../inner-connection.js';
import type { Certificate } from './certificate.js';
import type { KeyPair } from './key-pair.js';

/** From the first byte of the connection to the end of the handshake. */
export const HANDSHAKE_MS = 10_000;
const HANDSHAKE_RECORD = 22;
/** Forward secrecy and authenticated encryption only, as in the intermediate profile of Mozilla's server-side TLS. */
const CIPHERS = [
  'TLS_AES_128_GCM_SHA256',
  'TLS_AES_256_GCM_SHA384',
  'TLS_CHACHA20_POLY1305_SHA256',
  'ECDHE-ECDSA-AES128-GCM-SHA256',
  'ECDHE-RSA-AES128-GCM-SHA256',
  'ECDHE-ECDSA-AES256-GCM-SHA384',
  'ECDHE-RSA-AES256-GCM-SHA384',
  'ECDHE-ECDSA-CHACHA20-POLY1305',
  'ECDHE-RSA-CHACHA20-POLY1305',
].join(':');

function contextOf({ cert, key }: KeyPair): SecureContextOptions {
  const secureOptions = constants.SSL_OP_NO_RENEGOTIATION;
  return { cert, key, ciphers: CIPHERS, minVersion: 'TLSv1.2', secureOptions };
}

/**
 * Makes an HTTP server expect TLS on each new connection; connections of a Unix socket and those in memory
 * stay as they are. `answerPlain`
 * gets the connections that begin without TLS. `http2`: gets the connections whose clients choose HTTP/2, which is
 * offered only then. Returns a function that closes the connections that are still in their handshake.
 */
export function expectTls(
  server: Server,
  certificate: Certificate,
  answerPlain: (socket: Socket) => void,
  http2?: Http2Server,
): () => void {
  const [serve] = server.listeners('connection') as [(socket: Socket) => void];
  server.removeAllListeners('connection');
  const tls = createServer({
    ...contextOf(certificate.pair),
    ALPNProtocols: http2 ? ['h2', 'http/1.1'] : ['http/1.1'],
    handshakeTimeout: HANDSHAKE_MS,
  });
  certificate.onRenewal((pair) => tls.setSecureContext(contextOf(pair)));
  const beginning = new Map<string, { socket: Socket; settled: () => void }>();

  function begin(socket: Socket): void {
    if (socket.destroyed) return;
    const name = nameOf(socket);
    const late = setTimeout(() => socket.destroy(), HANDSHAKE_MS);
    const settled = () => {
      clearTimeout(late);
      beginning.delete(name);
    };
    beginning.set(name, { socket, settled });
    const giveUp = () => socket.destroy();
    socket.once('close', settled).once('end', giveUp).on('error', giveUp);
    socket.once('data', (chunk: Buffer) => {
      socket.off('end', giveUp);
      if (chunk[0] !== HANDSHAKE_RECORD) {
        settled();
        answerPlain(socket);
        return;
      }
      socket.pause();
      socket.unshift(chunk);
      tls.emit('connection', socket);
    });
  }

  tls.on('secureConnection', (socket) => {
    const begun = beginning.get(nameOf(socket));
    if (!begun) {
      socket.destroy();
      return;
    }
    begun.settled();
    carry(socket, begun.socket);
    if (socket.alpnProtocol === 'h2' && http2) http2.emit('connection', socket);
    else server.emit('connection', socket);
  });
  tls.on('tlsClientError', (_error, socket) => socket.destroy());
  server.on('connection', (socket: Socket) => {
    const isPlain = peerOf(socket) === UNIX_PEER || isInner(socket);
    if (socket instanceof TLSSocket || isPlain) serve.call(server, socket);
    else begin(socket);
  });
  return () => {
    for (const { socket } of beginning.values()) socket.destroy();
  };
}

/** The two ends of a connection, which no other open connection has. */
function nameOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return [remoteAddress, remotePort, localAddress, localPort].join(' ');
}
