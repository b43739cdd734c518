import { encode, type Answer } from 'dns-packet';
import type { Query } from './query.js';

const HEADER_BYTES = 12;
const SMALLEST_UDP = 512;
/** Fits into one packet of every path (DNS flag day 2020), so nothing depends on fragments. */
const UDP_SIZE = 1_232;
const TCP_SIZE = 65_535;
const FARTHEST_POINTER = 0x3fff;
const FLAGS = { response: 0x8000, truncated: 0x0200, recursionDesired: 0x0100, recursionAvailable: 0x0080 };

export interface Reply {
  rcode: number;
  answers?: readonly Answer[];
  authorities?: readonly Answer[];
}

/**
 * The reply in the wire format. Records that do not fit are left out, with TC set: clients retry by TCP, and old ones
 * without TCP (musl before 1.2.4) use the part.
 */
export function encodeReply(query: Query, reply: Reply, transport: 'udp' | 'tcp'): Buffer {
  const udpLimit = Math.min(UDP_SIZE, Math.max(SMALLEST_UDP, query.edns?.udpSize ?? 0));
  const opt = query.edns ? encodeOpt(reply.rcode >> 4) : Buffer.alloc(0);
  const room =
    (transport === 'udp' ? udpLimit : TCP_SIZE) - HEADER_BYTES - query.question.length - opt.length;
  const encoder = new RecordEncoder(query);
  const records: Buffer[] = [];
  const counts = { answers: 0, authorities: 0 };
  let [size, isTruncated] = [0, false];
  for (const section of ['answers', 'authorities'] as const)
    for (const record of isTruncated ? [] : (reply[section] ?? [])) {
      const bytes = encoder.encode(record);
      isTruncated = size + bytes.length > room;
      if (isTruncated) break;
      size += bytes.length;
      counts[section] += 1;
      records.push(bytes);
    }
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt16BE(query.id, 0);
  header.writeUInt16BE(
    FLAGS.response |
      FLAGS.recursionAvailable |
      (query.recursionDesired ? FLAGS.recursionDesired : 0) |
      (isTruncated ? FLAGS.truncated : 0) |
      (reply.rcode & 0x0f),
    2,
  );
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(counts.answers, 6);
  header.writeUInt16BE(counts.authorities, 8);
  header.writeUInt16BE(query.edns ? 1 : 0, 10);
  return Buffer.concat([header, query.question, ...records, opt]);
}

/** The bit DO is never set, because no signature is passed on. */
function encodeOpt(extendedRcode = 0): Buffer {
  return bodyOf({
    type: 'OPT',
    name: '.',
    udpPayloadSize: UDP_SIZE,
    extendedRcode,
    ednsVersion: 0,
    flags: 0,
    flag_do: false,
    options: [],
  });
}

/** Encodes records in their order, with pointers to names that are in the message already: the library has none. */
class RecordEncoder {
  private readonly offsets = new Map<string, number>();
  private end: number;

  constructor(query: Query) {
    this.end = HEADER_BYTES + query.question.length;
    if (query.name !== undefined) this.offsets.set(query.name.toLowerCase(), HEADER_BYTES);
  }

  encode(record: Answer): Buffer {
    const known = this.offsets.get(record.name.toLowerCase());
    const bytes =
      known === undefined
        ? bodyOf(record)
        : Buffer.concat([pointerTo(known), bodyOf({ ...record, name: '.' }).subarray(1)]);
    if (record.type === 'CNAME') {
      const target = this.end + bytes.length - nameLength(record.data);
      if (target <= FARTHEST_POINTER) this.offsets.set(record.data.toLowerCase(), target);
    }
    this.end += bytes.length;
    return bytes;
  }
}

function bodyOf(record: Answer): Buffer {
  return encode({ type: 'response', answers: [record] }).subarray(HEADER_BYTES);
}

function pointerTo(offset: number): Buffer {
  const pointer = Buffer.alloc(2);
  pointer.writeUInt16BE(0xc000 | offset);
  return pointer;
}

function nameLength(name: string): number {
  return name === '.' ? 1 : Buffer.byteLength(name) + 2;
}

/** A query for a name server, without options that tell of the sandbox. `id` is chosen for each exchange. */
export function encodeQuery(name: string, type: number): Buffer {
  const labels = name.split('.').map((label) => Buffer.from(`\0${label}`, 'latin1'));
  for (const label of labels) label[0] = label.length - 1;
  const tail = Buffer.from([0, 0, 0, 0, 1]);
  tail.writeUInt16BE(type, 1);
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt16BE(FLAGS.recursionDesired, 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(1, 10);
  return Buffer.concat([header, ...labels, tail, encodeOpt()]);
}
