import { createHmac, createSecretKey, hash, timingSafeEqual, type KeyObject } from 'node:crypto';

/** A keyset: the values of the sort column and the tie-breaker in the last row. */
export type Position = readonly string[];

export type CursorFault = 'damaged' | 'foreign';

const BINDING_BYTES = 8;
const MAC_BYTES = 16;

/**
 * A cursor is base64url of `binding (8 bytes) | HMAC (16 bytes) | position as JSON`. The HMAC covers the owner. The
 * binding is a hash of the query (endpoint, sort, filters): it distinguishes a cursor of another query from a forged
 * one.
 */
export class Cursors {
  private readonly key: KeyObject;

  constructor(key: Buffer) {
    this.key = createSecretKey(key);
  }

  encode(owner: string, query: unknown, position: Position): string {
    const binding = bindingOf(query);
    const body = Buffer.from(JSON.stringify(position));
    return Buffer.concat([binding, this.sign(owner, binding, body), body]).toString('base64url');
  }

  decode(owner: string, query: unknown, cursor: string): Position | CursorFault {
    const bytes = Buffer.from(cursor, 'base64url');
    // Buffer skips invalid characters, but only the issued text is accepted.
    if (bytes.toString('base64url') !== cursor || bytes.length < BINDING_BYTES + MAC_BYTES) return 'damaged';
    const binding = bytes.subarray(0, BINDING_BYTES);
    const mac = bytes.subarray(BINDING_BYTES, BINDING_BYTES + MAC_BYTES);
    const body = bytes.subarray(BINDING_BYTES + MAC_BYTES);
    if (!timingSafeEqual(mac, this.sign(owner, binding, body))) return 'damaged';
    if (!timingSafeEqual(binding, bindingOf(query))) return 'foreign';
    return JSON.parse(body.toString()) as Position;
  }

  private sign(owner: string, binding: Buffer, body: Buffer): Buffer {
    return createHmac('sha256', this.key)
      .update(owner)
      .update(binding)
      .update(body)
      .digest()
      .subarray(0, MAC_BYTES);
  }
}

function bindingOf(query: unknown): Buffer {
  return hash('sha256', JSON.stringify(query), 'buffer').subarray(0, BINDING_BYTES);
}
