import { isUuid } from '../../lib/uuid.js';

const UUID_BYTES = 16;

/** The name of a member for authenticators: the bytes of its id, which say nothing about the person. */
export function userHandleOf(memberId: string): string {
  return Buffer.from(memberId.replaceAll('-', ''), 'hex').toString('base64url');
}

/** Undefined: it is not of a member. */
export function memberIdOf(userHandle: string): string | undefined {
  const bytes = Buffer.from(userHandle, 'base64url');
  if (bytes.length !== UUID_BYTES) return undefined;
  const id = bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
  return isUuid(id) ? id : undefined;
}
