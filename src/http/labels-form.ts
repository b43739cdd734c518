import { MAX_KEY_BYTES, MAX_LABELS, MAX_VALUE_BYTES } from '../lib/labels.js';
import { documented } from './schema.js';

/** The lengths count bytes in the service and characters here: the bytes of a text are at least as many. */
export function labelsForm(maxProperties = MAX_LABELS) {
  return documented({
    maxProperties,
    propertyNames: { minLength: 1, maxLength: MAX_KEY_BYTES },
    additionalProperties: { type: 'string', maxLength: MAX_VALUE_BYTES },
  });
}
