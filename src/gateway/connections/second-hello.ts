/**
 * A server may ask for a second ClientHello (HelloRetryRequest, RFC 8446, 4.1.4), and some take its server name. So a
 * client could name an allowed host first and another one then. The client's bytes wait for the first answer of the
 * server, which every client does anyway. Only early data would not wait.
 */
import { readClientHello } from './client-hello.js';
import { LONGEST_FIRST_BYTES } from './first-bytes.js';

const HANDSHAKE = 22;
const SERVER_HELLO = 2;
const RECORD_HEADER = 5;
const RANDOM_AT = RECORD_HEADER + 4 + 2;
/** The random of a HelloRetryRequest: the SHA-256 of that word. */
const RETRY = Buffer.from('cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c', 'hex');
/** Servers take about as much early data. */
const MOST_HELD = 64 * 1024;

/** Whether the first bytes of a server ask for a second hello. */
export function asksForSecondHello(bytes: Buffer): boolean | 'more' {
  if (bytes.length > 0 && bytes[0] !== HANDSHAKE) return false;
  if (bytes.length > RECORD_HEADER && bytes[RECORD_HEADER] !== SERVER_HELLO) return false;
  if (bytes.length < RANDOM_AT + RETRY.length) return 'more';
  return bytes.subarray(RANDOM_AT, RANDOM_AT + RETRY.length).equals(RETRY);
}

/** Whether the bytes of a client, from a record on, have a second hello for the same name. */
export function readSecondHello(bytes: Buffer, name: string | undefined): 'more' | 'same' | 'other' {
  let at = 0;
  while (at + RECORD_HEADER <= bytes.length) {
    if (bytes[at] === HANDSHAKE) {
      const hello = readClientHello(bytes.subarray(at), LONGEST_FIRST_BYTES);
      if (hello === 'more') break;
      return hello !== 'broken' && hello.name === name ? 'same' : 'other';
    }
    at += RECORD_HEADER + bytes.readUInt16BE(at + 3);
  }
  return bytes.length > MOST_HELD ? 'other' : 'more';
}
