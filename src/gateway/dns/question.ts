const HEADER_BYTES = 12;
const LONGEST_NAME = 255;
const LONGEST_LABEL = 63;

/** The numbers of types (IANA) that the resolver knows. */
export const TYPES = {
  A: 1,
  NS: 2,
  CNAME: 5,
  SOA: 6,
  PTR: 12,
  MX: 15,
  TXT: 16,
  AAAA: 28,
  SRV: 33,
  NAPTR: 35,
  SVCB: 64,
  HTTPS: 65,
  IXFR: 251,
  AXFR: 252,
  ANY: 255,
  CAA: 257,
} as const;

export const RCODES = {
  noError: 0,
  formErr: 1,
  servFail: 2,
  nxDomain: 3,
  notImp: 4,
  refused: 5,
  /** EDNS only: the record OPT has its upper bits. */
  badVers: 16,
} as const;

/** The bytes of the only question of a message: name, type and class. Undefined: there is none that is valid. */
export function questionOf(message: Buffer): Buffer | undefined {
  if (message.length < HEADER_BYTES || message.readUInt16BE(4) !== 1) return undefined;
  let at = HEADER_BYTES;
  for (let length; length !== 0; at += 1 + length) {
    length = message[at];
    // The name of a question has nothing to point back to, so compressed labels are refused too.
    if (length === undefined || length > LONGEST_LABEL) return undefined;
    if (at + 1 + length - HEADER_BYTES > LONGEST_NAME) return undefined;
  }
  return at + 4 <= message.length ? message.subarray(HEADER_BYTES, at + 4) : undefined;
}

/** The name as it was asked, or `.`. Undefined: a label has a dot, or bytes that names of hosts never have. */
export function nameOf(question: Buffer): string | undefined {
  const labels: string[] = [];
  for (let at = 0; question[at] !== 0;) {
    const end = at + 1 + question[at]!;
    const label = question.toString('latin1', at + 1, end);
    if (!/^[\x21-\x2d\x2f-\x7e]+$/.test(label)) return undefined;
    labels.push(label);
    at = end;
  }
  return labels.length === 0 ? '.' : labels.join('.');
}

/** Whether a message answers a query: the same id, and the same question in any case. */
export function isAnswerTo(query: Buffer, message: Buffer): boolean {
  const asked = questionOf(query);
  const answered = questionOf(message);
  if (!asked || !answered || (message[2]! & 0x80) === 0) return false;
  if (message.readUInt16BE(0) !== query.readUInt16BE(0)) return false;
  // Bytes of types and classes that look like letters lose their case on both sides alike.
  return asked.toString('latin1').toLowerCase() === answered.toString('latin1').toLowerCase();
}

export function isTruncated(message: Buffer): boolean {
  return (message[2]! & 0x02) !== 0;
}

export function rcodeOf(message: Buffer): number {
  return message[3]! & 0x0f;
}
