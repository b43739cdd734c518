import type { Cursors, Position } from '../lib/cursor.js';
import { parseDate, parseInstant, type Instant } from '../lib/instant.js';
import { findUnstorable } from '../lib/storable-text.js';
import { badParameter } from './errors.js';
import { findRepeatedKey } from '../lib/exact-json.js';
import { parseJson } from '../lib/json.js';

/** Checks a cursor and gives the position it stands for. `query`: what the cursor must have been issued for. */
export function readCursor(
  cursors: Cursors,
  orgId: string,
  query: unknown,
  cursor: string | undefined,
): Position | undefined {
  if (cursor === undefined) return undefined;
  const position = cursors.decode(orgId, query, cursor);
  if (position === 'damaged') {
    throw badParameter(
      'cursor',
      'the cursor is damaged: use next_cursor exactly as it was returned, or leave it out',
    );
  }
  if (position === 'foreign') {
    throw badParameter(
      'cursor',
      'the cursor was issued for another endpoint, sort or filter: repeat those of the first page, or leave it out',
    );
  }
  return position;
}

export function readSince(name: string, text: string | undefined): Instant | undefined {
  return readInstant(name, text, 'up');
}

export function readUntil(name: string, text: string | undefined): Instant | undefined {
  return readInstant(name, text, 'down');
}

function readInstant(name: string, text: string | undefined, round: 'up' | 'down'): Instant | undefined {
  if (text === undefined) return undefined;
  const instant = parseInstant(repairPlus(text), round);
  if (!instant) {
    throw badParameter(
      name,
      `${name} must be an RFC 3339 date-time with an offset, such as 2026-11-21T10:07:00Z`,
    );
  }
  return instant;
}

/** A date-time, or a UTC date, which means its first instant. */
export function readDay(name: string, text: string | undefined): Instant | undefined {
  if (text === undefined) return undefined;
  const instant = parseDate(text) ?? parseInstant(repairPlus(text));
  if (!instant) {
    throw badParameter(
      name,
      `${name} must be an RFC 3339 date-time with an offset (2026-11-21T10:07:00Z) or a UTC date (2026-11-21)`,
    );
  }
  return instant;
}

/** In a query string an unescaped `+` is a space; in an offset it can only have been a plus. */
function repairPlus(text: string): string {
  return text.replace(/ (\d{2}:\d{2})$/, '+$1');
}

/** A JSON object of strings, such as `{"team":"ml"}`. */
export function readLabels(name: string, text: string | undefined): Record<string, string> {
  if (text === undefined) return {};
  const labels = parseJson(text);
  if (
    typeof labels !== 'object' ||
    labels === null ||
    Array.isArray(labels) ||
    Object.values(labels).some((value) => typeof value !== 'string')
  ) {
    throw badParameter(name, `${name} must be a JSON object with string values, such as {"team":"ml"}`);
  }
  if (findUnstorable(labels) !== undefined) {
    throw badParameter(name, `${name} must not contain U+0000 or half of a surrogate pair`);
  }
  // JSON.parse keeps the last of equal keys and does not tell.
  if (findRepeatedKey(text) !== undefined) {
    throw badParameter(name, `${name} has a key twice: a sandbox has one value for each key`);
  }
  return labels as Record<string, string>;
}
