import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { createServer, type Server, type Socket } from 'node:net';
import { Slots } from '../fairness/slots.js';

/** Answers a query in the wire format. Undefined: the query gets no answer. */
export type AnswerQuery = (
  query: Buffer,
  from: string,
  transport: 'udp' | 'tcp',
) => Promise<Buffer | undefined>;

/** Queries that are answered at once, in all and of one sandbox. */
const QUERIES = { total: 4_096, each: 128 };
const TCP_CONNECTIONS = { total: 1_024, each: 32 };
const TCP_QUERIES_AT_ONCE = 16;
/** Queries have one name and a few options. */
const LONGEST_QUERY = 4_096;
const IDLE_MS = 10_000;

/** Serves queries over UDP. A query above the bounds gets no answer, so its client asks again. */
export function serveUdp(answer: AnswerQuery): UdpSocket {
  const slots = new Slots(QUERIES);
  const socket = createSocket('udp4');
  socket.on('message', (query, { address, port }) => {
    const release = query.length <= LONGEST_QUERY ? slots.acquire(address) : undefined;
    if (!release) return;
    void answer(query, address, 'udp')
      // A client that has left is no fault of the listener.
      .then((bytes) => bytes && socket.send(bytes, port, address, () => {}))
      .catch(() => {})
      .finally(release);
  });
  return socket;
}

/** Serves queries over TCP, each with its length in front. Answers may be in another order than the queries. */
export function serveTcp(answer: AnswerQuery): Server {
  const connections = new Slots(TCP_CONNECTIONS);
  const queries = new Slots(QUERIES);
  return createServer((socket) => {
    socket.on('error', () => {});
    const { remoteAddress } = socket;
    const release = remoteAddress === undefined ? undefined : connections.acquire(remoteAddress);
    if (!release || remoteAddress === undefined) return void socket.resetAndDestroy();
    socket.on('close', release);
    socket.setTimeout(IDLE_MS, () => socket.destroy());
    readQueries(socket, (query) => {
      const done = queries.acquire(remoteAddress);
      if (!done) return Promise.resolve(undefined);
      return answer(query, remoteAddress, 'tcp').finally(done);
    });
  });
}

function readQueries(socket: Socket, answer: (query: Buffer) => Promise<Buffer | undefined>): void {
  let held = Buffer.alloc(0);
  let atOnce = 0;
  const take = () => {
    while (held.length >= 2 && atOnce < TCP_QUERIES_AT_ONCE) {
      const length = held.readUInt16BE(0);
      if (length > LONGEST_QUERY) return void socket.resetAndDestroy();
      if (held.length < 2 + length) break;
      const query = Buffer.from(held.subarray(2, 2 + length));
      held = held.subarray(2 + length);
      atOnce += 1;
      void answer(query)
        .then((bytes) => bytes && send(socket, bytes))
        .catch(() => socket.resetAndDestroy())
        .finally(() => {
          atOnce -= 1;
          take();
        });
    }
    // The kernel holds what is above the queries that are answered now.
    if (held.length > LONGEST_QUERY + 2) socket.pause();
    else socket.resume();
  };
  socket.on('data', (chunk: Buffer) => {
    held = Buffer.concat([held, chunk]);
    take();
  });
}

function send(socket: Socket, answer: Buffer): void {
  // A client that reads nothing would have its answers pile up here.
  if (!socket.writable || socket.writableNeedDrain) return void socket.resetAndDestroy();
  const length = Buffer.alloc(2);
  length.writeUInt16BE(answer.length);
  socket.write(Buffer.concat([length, answer]));
}
