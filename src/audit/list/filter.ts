import { Type, type TSchema } from 'typebox';
import { badParameter } from '../../http/errors.js';
import { readSince, readUntil } from '../../http/parameters.js';
import { isUuid } from '../../lib/uuid.js';
import { documented, Repeatable, Words } from '../../http/schema.js';
import { FILTER_COLUMNS, type EventFilter, type FilterColumn } from '../events/queries.js';

const word = Type.String({ minLength: 1, maxLength: 200 });
const excludes = 'The parameter can be repeated. A value that starts with `!` excludes its events.';
const KINDS = ['user', 'api_key', 'system', 'ssh_key', '!user', '!api_key', '!system', '!ssh_key'] as const;

export const FilterParameters = {
  event_type: Repeatable(word, `Only events of this type, such as \`api_key_created\`. ${excludes}`),
  category: Repeatable(word, `Only events of this category, such as \`sandbox\`. ${excludes}`),
  actor_kind: Repeatable(Words([...KINDS]), `Only events of this kind of actor. ${excludes}`),
  actor_id: Repeatable(
    word,
    `Only events of this actor: the id of a user or key, or a code of the system. ${excludes}`,
  ),
  resource_id: Repeatable(
    word,
    `Only events about this object: the id of a sandbox, volume or key. ${excludes}`,
  ),
  since: Type.Optional(
    Type.String({
      ...documented({ format: 'date-time' }),
      description: 'Only events at or after this RFC 3339 date-time.',
    }),
  ),
  until: Type.Optional(
    Type.String({
      ...documented({ format: 'date-time' }),
      description: 'Only events at or before this RFC 3339 date-time.',
    }),
  ),
} satisfies Record<FilterColumn | 'since' | 'until', TSchema>;

export interface FilterQuery extends Partial<Record<FilterColumn, string[]>> {
  since?: string;
  until?: string;
}

const COLUMNS = Object.keys(FILTER_COLUMNS) as FilterColumn[];

export function readEventFilter(query: FilterQuery): EventFilter {
  const filter: EventFilter = {
    columns: COLUMNS.flatMap((column) => {
      const values = query[column];
      return values ? [readFilter(column, values)] : [];
    }),
    since: readSince('since', query.since),
    until: readUntil('until', query.until),
  };
  if (filter.since !== undefined && filter.until !== undefined && filter.since > filter.until) {
    throw badParameter('until', 'until must not be earlier than since');
  }
  return filter;
}

export function givenFilter(query: FilterQuery): Record<string, unknown> {
  const given = [...COLUMNS, 'since', 'until'].map(
    (name) => [name, query[name as keyof FilterQuery]] as const,
  );
  return Object.fromEntries(given.filter(([, value]) => value !== undefined));
}

export function isEmpty({ columns, since, until }: EventFilter): boolean {
  return columns.length === 0 && since === undefined && until === undefined;
}

function readFilter(column: FilterColumn, values: string[]): EventFilter['columns'][number] {
  const include: string[] = [];
  const exclude: string[] = [];
  for (const value of values) {
    const text = value.startsWith('!') ? value.slice(1) : value;
    if (text === '') throw badParameter(column, `${column} must not be empty`);
    const isId = column === 'resource_id';
    const wanted = isId ? text.toLowerCase() : text;
    if (isId && !isUuid(wanted)) {
      throw badParameter(column, 'resource_id must be a UUID, or ! and a UUID to exclude it');
    }
    (value.startsWith('!') ? exclude : include).push(wanted);
  }
  return { column, include, exclude };
}
