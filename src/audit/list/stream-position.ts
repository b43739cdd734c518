import { badParameter } from '../../http/errors.js';
import type { Cursors } from '../../lib/cursor.js';

/** Says for places in the log what cursors of lists say for pages. Whatever hands out the log takes those of the others. */
const BINDING = ['event log'];

/** The place after an entry, as clients keep it. */
export function encodePlace(cursors: Cursors, orgId: string, seq: number): string {
  return cursors.encode(orgId, BINDING, [String(seq)]);
}

/** Reads a place; undefined when there is none. `name`: of the parameter or header it came in. */
export function readPlace(
  cursors: Cursors,
  orgId: string,
  name: string,
  text: string | undefined,
): number | undefined {
  if (text === undefined || text === '') return undefined;
  const position = cursors.decode(orgId, BINDING, text);
  if (typeof position === 'string') {
    throw badParameter(name, `${name} must be what a stream or an export of events gave, exactly`);
  }
  return Number(position[0]);
}
