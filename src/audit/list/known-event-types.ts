import type { Sql } from '../../db/pool.js';
import { badParameter } from '../../http/errors.js';
import { nearestName } from '../../lib/nearest.js';
import { CATALOGUE } from '../events/catalogue.js';
import { hasEventOfType, type EventFilter } from '../events/queries.js';
import { readEventFilter, type FilterQuery } from './filter.js';

/**
 * Throws ApiError for an event type that neither the catalogue nor the organization has: a misspelt type would match
 * nothing.
 */
export async function readKnownFilter(sql: Sql, orgId: string, query: FilterQuery): Promise<EventFilter> {
  const filter = readEventFilter(query);
  const types = filter.columns.find(({ column }) => column === 'event_type');
  for (const type of types ? [...types.include, ...types.exclude] : []) {
    if (Object.hasOwn(CATALOGUE, type) || (await hasEventOfType(sql, orgId, type))) continue;
    throw badParameter('event_type', `event_type: ${explainUnknownType(type)}`);
  }
  return filter;
}

export function explainUnknownType(type: string): string {
  const nearest = nearestName(type, Object.keys(CATALOGUE));
  const hint = nearest === undefined ? '' : `did you mean "${nearest}"? `;
  return `there is no event type "${type}"; ${hint}docs/audit-events.md lists them`;
}
