import type { Sql } from '../../db/pool.js';
import { badParameter } from '../../http/errors.js';
import { nearestName } from '../../lib/nearest.js';
import { CATALOGUE } from '../events/catalogue.js';
import { hasEventOfType, type EventFilter } from '../events/queries.js';
import { readEventFilter, type FilterQuery } from './filter.js';

/**
 * Reads the filter of a request, and refuses an event type that neither the catalogue nor the organization's imported history has.
 * A filter by a misspelt type would match nothing and look like an answer.
 */
export async function readKnownFilter(sql: Sql, orgId: string, query: FilterQuery): Promise<EventFilter> {
  const filter = readEventFilter(query);
  const types = filter.columns.find(({ column }) => column === 'event_type');
  for (const type of types ? [...types.include, ...types.exclude] : []) {
    if (Object.hasOwn(CATALOGUE, type) || (await hasEventOfType(sql, orgId, type))) continue;
    throw badParameter('event_type', `event_type: ${explainUnknown(type)}`);
  }
  return filter;
}

/** For a refusal of a type that is not in the catalogue. */
export function explainUnknown(type: string): string {
  const meant = nearestName(type, Object.keys(CATALOGUE));
  const hint = meant === undefined ? '' : `did you mean "${meant}"? `;
  return `there is no event type "${type}"; ${hint}docs/audit-events.md lists them`;
}
