import { CATALOGUE } from '../audit/events/catalogue.js';
import { explainUnknownType } from '../audit/list/known-event-types.js';
import { ApiError } from '../http/errors.js';

/**
 * Throws the refusal of types for which nothing would ever be sent: of a word that no event has as its type, somebody believes
 * that it is delivered. What is imported has other types, and is not sent.
 */
export function checkTypes(eventTypes: readonly string[]): void {
  const refuse = (message: string) => new ApiError('invalid_request', message, { field: 'event_types' });
  const unknown = eventTypes
    .map((each) => each.replace(/^!/, ''))
    .find((type) => !Object.hasOwn(CATALOGUE, type));
  if (unknown !== undefined) {
    throw refuse(`event_types: ${explainUnknownType(unknown)}`);
  }
  const excluded = eventTypes.filter((each) => each.startsWith('!')).length;
  if (excluded > 0 && excluded < eventTypes.length) {
    throw refuse('event_types names either what is sent or, with ! in front of each, what is not');
  }
}
