import { v7 } from 'uuid';
import { microsOf, now } from './instant.js';

/** A UUID of any version, in either case. */
export const UUID_PATTERN = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export function isUuid(text: string): boolean {
  return UUID_PATTERN.test(text);
}

/**
 * A UUID of version 7. Those of a process strictly increase. The generator of the library would keep counting from the
 * highest time that it has seen, however long after the system clock was set back.
 */
export function newId(): string {
  const micros = microsOf(now());
  return v7({ msecs: Number(micros / 1000n), seq: Number(micros % 1000n) * 2 ** 22 });
}
