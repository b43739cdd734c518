/**
 * A minimal web server and a name server in the network namespace of a bench. `GET /bytes/<n>` answers with so many
 * bytes, every other request with 1 KiB. Node's own server would cost more than the gateways that it measures.
 */
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { createServer, type TLSSocket } from 'node:tls';
import { ZoneServer } from '../../test/support/internet/names.js';
import type { ServersConfig } from '../../test/support/internet/protocol.js';

const END = '\r\n\r\n';
const SMALL = answerOf(1_024);
const PIECE = Buffer.alloc(256 * 1_024, 'x');

const lines = createInterface(process.stdin);
const [line] = (await once(lines, 'line')) as [string];
lines.on('close', () => process.exit(0));
const config = JSON.parse(line) as ServersConfig;
await new ZoneServer(config.zone).listen(config.resolver);
const [{ cert, key }] = config.certificates as [ServersConfig['certificates'][number]];
const server = createServer({ cert, key, ALPNProtocols: ['http/1.1'], noDelay: true }, (socket) => {
  let rest = '';
  socket.on('error', () => undefined);
  socket.on('data', (chunk) => {
    const requests = (rest + chunk.toString('latin1')).split(END);
    rest = requests.pop()!;
    for (const request of requests) {
      const bytes = /^GET \/bytes\/(\d+) /.exec(request)?.[1];
      if (bytes === undefined) socket.write(SMALL);
      else sendBytes(socket, Number(bytes));
    }
  });
});
server.listen(443, '0.0.0.0');
await once(server, 'listening');
process.stdout.write('{"isReady":true}\n');

function answerOf(bytes: number): Buffer {
  return Buffer.from(`${headOf(bytes)}${'x'.repeat(bytes)}`);
}

function headOf(bytes: number): string {
  return `HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: ${bytes}${END}`;
}

function sendBytes(socket: TLSSocket, bytes: number): void {
  let left = bytes;
  const more = () => {
    while (left > 0) {
      const piece = left < PIECE.length ? PIECE.subarray(0, left) : PIECE;
      left -= piece.length;
      if (!socket.write(piece)) {
        socket.once('drain', more);
        return;
      }
    }
  };
  socket.write(headOf(bytes));
  more();
}
