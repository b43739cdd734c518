import { ApiError } from '../../http/errors.js';
import { findUnstorable } from '../../lib/storable-text.js';
import { LONGEST_PASSKEY_NAME } from './schema.js';

/** The name without the spaces around it. Throws ApiError. */
export function checkPasskeyName(given: string): string {
  const name = given.trim();
  if (name !== '' && findUnstorable(name) === undefined) return name;
  const message = `the name of a passkey must have 1 to ${LONGEST_PASSKEY_NAME} printable characters`;
  throw new ApiError('invalid_request', message, { field: 'name' });
}
