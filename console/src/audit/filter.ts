import type { Operations } from '../lib/api-types';
import type { UrlState } from '../lib/url-state';

type Query = Operations['GET /v1/events']['query'];

/** The repeatable filters of the API. A value that begins with `!` excludes. */
export const FIELDS = {
  event_type: 'Event type',
  category: 'Category',
  actor_kind: 'Kind of actor',
  actor_id: 'Actor',
  resource_id: 'Object',
} as const satisfies Partial<Record<keyof Query, string>>;
export type FieldName = keyof typeof FIELDS;
export const FIELD_NAMES = Object.keys(FIELDS) as FieldName[];

const KINDS: Record<Exclude<NonNullable<Query['actor_kind']>[number], `!${string}`>, true> = {
  user: true,
  api_key: true,
  system: true,
  ssh_key: true,
};
export const ACTOR_KINDS = Object.keys(KINDS);

/** The filters in the address, under the names of the API. */
export function filterOf(url: UrlState): Omit<Query, 'cursor' | 'limit'> {
  const given = [
    ...FIELD_NAMES.map((name) => [name, url.all(name)] as const),
    ...['since', 'until'].map((name) => [name, url.get(name)] as const),
  ];
  return Object.fromEntries(given.filter(([, value]) => value.length > 0));
}

export const NO_FILTER = Object.fromEntries(
  [...FIELD_NAMES, 'since', 'until'].map((name) => [name, undefined]),
);
