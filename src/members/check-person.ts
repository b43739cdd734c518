import { ApiError } from '../http/errors.js';
import { findUnstorable } from '../lib/storable-text.js';

const LONGEST_EMAIL = 254;
export const LONGEST_NAME = 200;

export function isEmail(text: string): boolean {
  return /^[^\s@*\0]+@[^\s@*\0]+$/.test(text) && text.length <= LONGEST_EMAIL && text.isWellFormed();
}

/** Throws ApiError, which names the field. */
export function checkEmail(email: string): void {
  if (isEmail(email)) return;
  const message = `an e-mail address is like name@example.com, of at most ${LONGEST_EMAIL} characters`;
  throw new ApiError('invalid_request', message, { field: 'email' });
}

/** Throws ApiError, which names the field. */
export function checkName(displayName: string | null): void {
  const isBad =
    displayName !== null &&
    (displayName.trim() === '' ||
      displayName.length > LONGEST_NAME ||
      findUnstorable(displayName) !== undefined);
  if (!isBad) return;
  const message = `the name of a member must have 1 to ${LONGEST_NAME} characters`;
  throw new ApiError('invalid_request', message, { field: 'display_name' });
}
