import { badParameter } from '../../http/errors.js';
import type { Cursors } from '../../lib/cursor.js';

/** One binding for exports and streams: each accepts the positions that the other returned. */
const BINDING = ['event log'];

export function encodePosition(cursors: Cursors, orgId: string, seq: number): string {
  return cursors.encode(orgId, BINDING, [String(seq)]);
}

/** Returns the `seq` in a cursor; undefined for an empty one. `name`: the parameter or header with the cursor. */
export function parsePosition(
  cursors: Cursors,
  orgId: string,
  name: string,
  text: string | undefined,
): number | undefined {
  if (text === undefined || text === '') return undefined;
  const position = cursors.decode(orgId, BINDING, text);
  if (typeof position === 'string') {
    throw badParameter(
      name,
      `${name} is not a cursor of the event log; copy the \`next-cursor\` of an export or the \`id\` of a streamed event`,
    );
  }
  const [seq] = position;
  return Number(seq);
}
