import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, isIPv6 } from 'node:net';
import { decode, encode, streamEncode, TRUNCATED_RESPONSE, type Answer } from 'dns-packet';
import { freePort } from './free-port.js';

/** A name server over UDP and TCP whose records have no time to live. */
export interface NameServer {
  /** For `Resolver.setServers`. */
  address: string;
  /** The questions, as `A name`. */
  questions: string[];
  /** The addresses of a name, at each question anew. `{ alias }`: an alias first. Null: silence. */
  records: (name: string) => string[] | { alias: string; addresses: string[] } | null;
  close(): Promise<void>;
}

const UDP_BYTES = 512;

export async function startNameServer(records: NameServer['records']): Promise<NameServer> {
  const reply = (query: Buffer): Buffer | undefined => {
    const { id, questions = [] } = decode(query);
    const [question] = questions;
    if (!question) return undefined;
    const { name, type } = question;
    server.questions.push(`${type} ${name}`);
    const found = server.records(name);
    if (found === null) return undefined;
    const { alias, addresses } = Array.isArray(found) ? { alias: name, addresses: found } : found;
    const aliases: Answer[] = alias === name ? [] : [{ type: 'CNAME', name, ttl: 0, data: alias }];
    const own = addresses.filter((address) => isIPv6(address) === (type === 'AAAA'));
    const answers = own.map((data) => ({ type: type as 'A', name: alias, ttl: 0, data }));
    return encode({ type: 'response', id: id!, questions, answers: [...aliases, ...answers] });
  };
  const udp = createSocket('udp4', (query, { port, address }) => {
    const answer = reply(query);
    if (!answer) return;
    const { id, questions } = decode(query);
    const cut = encode({ type: 'response', id: id!, flags: TRUNCATED_RESPONSE, questions: questions! });
    udp.send(answer.length > UDP_BYTES ? cut : answer, port, address);
  });
  // One port for both: a port that is free for UDP may be that of a TCP connection.
  const port = await freePort();
  udp.bind(port, '127.0.0.1');
  await once(udp, 'listening');
  const tcp = createServer((socket) => {
    let received = Buffer.alloc(0);
    socket.on('error', () => undefined);
    socket.on('data', (chunk) => {
      received = Buffer.concat([received, chunk]);
      while (received.length >= 2 && received.length >= 2 + received.readUInt16BE()) {
        const end = 2 + received.readUInt16BE();
        const answer = reply(received.subarray(2, end));
        if (answer) socket.write(streamEncode({ ...decode(answer), type: 'response' }));
        received = received.subarray(end);
      }
    });
  });
  tcp.listen(port, '127.0.0.1');
  await once(tcp, 'listening');
  const server: NameServer = {
    address: `127.0.0.1:${port}`,
    questions: [],
    records,
    async close() {
      await new Promise<void>((resolve) => udp.close(() => resolve()));
      await new Promise<void>((resolve) => tcp.close(() => resolve()));
    },
  };
  return server;
}
