import { refuse } from './refuse.js';
import { MAX_PATH_BYTES } from './size-limits.js';

/** The folder of the service's own files in the guest. */
const RESERVED = '/.sandkeep/';

export function checkGuestPath(path: string, field: string): void {
  const normal =
    path.startsWith('/') &&
    path !== '/' &&
    !path
      .slice(1)
      .split('/')
      .some((part) => ['', '.', '..'].includes(part));
  if (!normal) refuse(field, `${field} must be an absolute, normalised path other than /`);
  if (Buffer.byteLength(path) > MAX_PATH_BYTES)
    refuse(field, `${field} has more than ${MAX_PATH_BYTES} bytes`);
  if (/[:;,]/.test(path)) refuse(field, `${field} must not have : ; or ,`);
  if (`${path}/`.startsWith(RESERVED)) refuse(field, `${field} is under ${RESERVED}, which is reserved`);
}
