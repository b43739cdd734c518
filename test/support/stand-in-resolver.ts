import { decode, encode, type Answer } from 'dns-packet';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { freePort } from './free-port.js';

export interface Asked {
  name: string;
  type: string;
  transport: 'udp' | 'tcp';
  /** The whole query. */
  message: Buffer;
}

/** Bytes are sent as they are. Null: the server stays silent. */
export type Told =
  { rcode?: number; truncated?: boolean; answers?: Answer[]; authorities?: Answer[] } | Buffer | null;

export interface StandIn {
  address: string;
  port: number;
  asked: Asked[];
  close(): void;
}

/** A name server on the loopback, by UDP and TCP, that says what a test wants. */
export async function startNameServer(
  tell: (asked: Asked) => Told | Promise<Told>,
  address = '127.0.0.1',
): Promise<StandIn> {
  const asked: Asked[] = [];
  const answer = async (message: Buffer, transport: Asked['transport']) => {
    const { id, questions = [] } = decode(message);
    const [{ name, type }] = questions as [{ name: string; type: string }];
    const question = { name, type, transport, message };
    asked.push(question);
    const told = await tell(question);
    if (told === null || Buffer.isBuffer(told)) return told;
    const flags = 0x0080 | (told.truncated ? 0x0200 : 0) | (told.rcode ?? 0);
    const { answers = [], authorities = [] } = told;
    return encode({ type: 'response', id: id!, flags, questions, answers, authorities });
  };
  const tcp = createServer((socket) => {
    socket.on('error', () => {});
    const send = (bytes: Buffer | null) => {
      if (bytes === null) return;
      const length = Buffer.alloc(2);
      length.writeUInt16BE(bytes.length);
      // In two segments, so a client must put them together.
      socket.write(Buffer.concat([length, bytes.subarray(0, 1)]), () => socket.end(bytes.subarray(1)));
    };
    socket.on('data', (data: Buffer) => void answer(data.subarray(2), 'tcp').then(send));
  });
  // Nobody has it for UDP either.
  const port = await freePort();
  tcp.listen(port, address);
  await once(tcp, 'listening');
  const udp = createSocket(address.includes(':') ? 'udp6' : 'udp4');
  udp.on('message', (message, from) => {
    void answer(message, 'udp').then((bytes) => bytes && udp.send(bytes, from.port, from.address));
  });
  udp.bind(port, address);
  await once(udp, 'listening');
  return {
    address,
    port,
    asked,
    close: () => {
      udp.close();
      tcp.close();
    },
  };
}

export function a(name: string, data: string, ttl = 60): Answer {
  return { type: 'A', name, data, ttl, class: 'IN' };
}

export function alias(name: string, data: string, ttl = 60): Answer {
  return { type: 'CNAME', name, data, ttl, class: 'IN' };
}

export function soa(name: string, ttl = 60, minimum = 60): Answer {
  const data = {
    mname: `ns.${name}`,
    rname: `mail.${name}`,
    serial: 1,
    refresh: 1,
    retry: 1,
    expire: 1,
    minimum,
  };
  return { type: 'SOA', name, data, ttl, class: 'IN' };
}
