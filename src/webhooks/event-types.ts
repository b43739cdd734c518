import { CATALOGUE } from '../audit/events/catalogue.js';
import { explainUnknownType } from '../audit/list/known-event-types.js';
import { ApiError } from '../http/errors.js';

/**
 * Refuses unknown event types, for which nothing would ever be sent. Imported events may have other types, but are not
 * sent.
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
    throw refuse(
      'event_types must list either the types to send or, each with a leading !, the types to leave out',
    );
  }
}
