import { decode, type OptAnswer } from 'dns-packet';
import { nameOf, questionOf, RCODES } from './question.js';

const HEADER_BYTES = 12;
const CLASS_IN = 1;
const MOST_ADDITIONALS = 2;

/** A valid query of a sandbox. */
export interface Query {
  id: number;
  recursionDesired: boolean;
  /** As it was asked: answers keep the case of its letters. Undefined: it can be no name of a host. */
  name: string | undefined;
  type: number;
  /** Name, type and class in the wire format. */
  question: Buffer;
  /** Absent: the client knows no EDNS. */
  edns?: { udpSize: number; version: number } | undefined;
}

export type ReadQuery = { query: Query } | { refusal: Buffer } | undefined;

/**
 * Reads a message of a sandbox. A message that is no query gets no answer, so two servers never answer each other. A
 * wrong query is refused by its header alone.
 */
export function readQuery(message: Buffer): ReadQuery {
  if (message.length < HEADER_BYTES || (message[2]! & 0x80) !== 0) return undefined;
  if ((message[2]! & 0x78) !== 0) return { refusal: refuse(message, RCODES.notImp) };
  // Each record may have a name of a thousand pointers. A query has the options of EDNS, and perhaps a signature.
  if (
    message.readUInt16BE(6) > 0 ||
    message.readUInt16BE(8) > 0 ||
    message.readUInt16BE(10) > MOST_ADDITIONALS
  )
    return { refusal: refuse(message, RCODES.formErr) };
  const question = questionOf(message);
  const opts = question && optsOf(message);
  if (!opts || opts.length > 1) return { refusal: refuse(message, RCODES.formErr) };
  if (question.readUInt16BE(question.length - 2) !== CLASS_IN)
    return { refusal: refuse(message, RCODES.refused) };
  const [opt] = opts;
  return {
    query: {
      id: message.readUInt16BE(0),
      recursionDesired: (message[2]! & 0x01) !== 0,
      name: nameOf(question),
      type: question.readUInt16BE(question.length - 4),
      question,
      edns: opt && { udpSize: opt.udpPayloadSize, version: opt.ednsVersion },
    },
  };
}

/** Undefined: the message is malformed. */
function optsOf(message: Buffer): OptAnswer[] | undefined {
  try {
    const { additionals = [] } = decode(message);
    return additionals.filter((record) => record.type === 'OPT');
  } catch {
    return undefined;
  }
}

function refuse(message: Buffer, rcode: number): Buffer {
  const answer = Buffer.alloc(HEADER_BYTES);
  message.copy(answer, 0, 0, 2);
  // QR, and the operation and RD of the query.
  answer[2] = 0x80 | (message[2]! & 0x79);
  answer[3] = 0x80 | rcode;
  return answer;
}
