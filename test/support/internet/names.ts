import { createSocket } from 'node:dgram';
import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { decode, encode, streamEncode, type Answer, type Packet } from 'dns-packet';
import type { NameRecord, Zone } from './protocol.js';

const SERVER_FAILURE = 2;
const MISSING = 3;
const DEFAULT_TTL = 60;
const MOST_ALIASES = 8;

/** An authoritative name server over UDP and TCP. */
export class ZoneServer {
  /** As `A name udp`. */
  readonly questions: string[] = [];

  constructor(public zone: Zone) {}

  async listen(address: string, port = 53): Promise<void> {
    const udp = createSocket('udp4', (query, peer) => {
      void this.reply(query, 'udp').then(
        (answer) => answer && udp.send(encode(answer), peer.port, peer.address),
      );
    });
    await new Promise<void>((resolve) => udp.bind(port, address, resolve));
    const tcp = createServer((socket) => {
      let received = Buffer.alloc(0);
      socket.on('error', () => undefined);
      socket.on('data', (chunk) => {
        received = Buffer.concat([received, chunk]);
        while (received.length >= 2 && received.length >= 2 + received.readUInt16BE()) {
          const end = 2 + received.readUInt16BE();
          void this.reply(received.subarray(2, end), 'tcp').then(
            (answer) => answer && socket.write(streamEncode(answer)),
          );
          received = received.subarray(end);
        }
      });
    });
    await new Promise<void>((resolve) => tcp.listen(port, address, resolve));
  }

  async reply(query: Buffer, transport: string): Promise<Packet | undefined> {
    const { id, questions = [] } = decode(query);
    const [question] = questions;
    if (!question) return undefined;
    const { type, name } = question;
    this.questions.push(`${type} ${name.toLowerCase()} ${transport}`);
    const answers: Answer[] = [];
    let current = name;
    let record: NameRecord | undefined;
    for (let step = 0; step < MOST_ALIASES; step += 1) {
      record = this.find(current);
      if (record?.alias === undefined) break;
      answers.push({ type: 'CNAME', name: current, ttl: record.ttl ?? DEFAULT_TTL, data: record.alias });
      current = record.alias;
    }
    if (record?.delayMs !== undefined) await sleep(record.delayMs);
    if (record?.fails === 'silence') return undefined;
    const code = record?.fails === 'server-failure' ? SERVER_FAILURE : record && !record.fails ? 0 : MISSING;
    for (const data of record?.addresses ?? []) {
      const isV6 = data.includes(':');
      if (type === (isV6 ? 'AAAA' : 'A')) {
        answers.push({ type, name: current, ttl: record!.ttl ?? DEFAULT_TTL, data });
      }
    }
    return { type: 'response', id: id!, flags: 0x0580 | code, questions, answers };
  }

  private find(name: string): NameRecord | undefined {
    const lower = name.toLowerCase();
    const own = this.zone[lower];
    if (own) return own;
    const labels = lower.split('.');
    return labels
      .map((_, index) => this.zone[`*.${labels.slice(index + 1).join('.')}`])
      .find((found) => found !== undefined);
  }
}
