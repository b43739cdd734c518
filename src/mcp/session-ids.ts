import { randomBytes } from 'node:crypto';
import type { Caller } from '../access/caller.js';
import { ApiError } from '../http/errors.js';
import type { Cursors } from '../lib/cursor.js';

/** Longer ones were not issued here. */
const LONGEST = 256;
const RANDOM_BYTES = 16;

/**
 * Ids of sessions are signed and name their key, so no process stores them: every process accepts them, a restart
 * keeps them, and any number of them costs nothing. They end with their key.
 */
export function newSessionId(cursors: Cursors, caller: Caller): string {
  return cursors.encode(caller.orgId, bindingOf(caller), [randomBytes(RANDOM_BYTES).toString('base64url')]);
}

/** Throws `mcp_session_not_found` for an id that this key did not get. The client then begins a new session. */
export function checkSessionId(cursors: Cursors, caller: Caller, id: string): void {
  const isOwn =
    id.length <= LONGEST && typeof cursors.decode(caller.orgId, bindingOf(caller), id) !== 'string';
  if (!isOwn) throw new ApiError('mcp_session_not_found');
}

function bindingOf({ key }: Caller): unknown {
  return ['mcp session', key?.id ?? null];
}
