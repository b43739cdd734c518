import type { SandboxStatus, SandboxStopReason } from '../lib/api-types';
import { useUrlState, type UrlState } from '../lib/url-state';

const STATUS: Record<SandboxStatus, true> = {
  created: true,
  starting: true,
  running: true,
  stopping: true,
  stopped: true,
  failed: true,
};
export const STATUSES = Object.keys(STATUS);

const REASON: Record<SandboxStopReason, true> = {
  requested: true,
  idle: true,
  paused: true,
  max_duration: true,
  quota: true,
  budget: true,
  command: true,
  oom: true,
  disk_full: true,
  secret_violation: true,
  engine: true,
  lost: true,
  start_failed: true,
};
export const REASONS = Object.keys(REASON);

const SORTS = ['-created_at', 'created_at', 'name'] as const;
/** The order without one in the address. */
export const NEWEST_FIRST: (typeof SORTS)[number] = '-created_at';

/** The filters of the API, under its names. */
const FILTERS = [
  'name_contains',
  'name_prefix',
  'status',
  'stop_reason',
  'labels',
  'created_after',
  'created_before',
] as const;

export const NO_FILTER = Object.fromEntries(FILTERS.map((name) => [name, undefined]));

/** The query of the list that the address asks for. */
export function queryOf(url: UrlState) {
  const optional = (name: (typeof FILTERS)[number]) => url.get(name) || undefined;
  const statuses = url.all('status') as SandboxStatus[];
  const reasons = url.all('stop_reason') as SandboxStopReason[];
  return {
    status: statuses.length === 0 ? undefined : statuses,
    labels: optional('labels'),
    stop_reason: reasons.length === 0 ? undefined : reasons,
    name_contains: optional('name_contains'),
    name_prefix: optional('name_prefix'),
    created_after: optional('created_after'),
    created_before: optional('created_before'),
    cursor: url.get('cursor') || undefined,
    // Another order is that of a column, which only a whole list has.
    sort: SORTS.find((sort) => sort === url.get('sort')) ?? NEWEST_FIRST,
  };
}

/** The state of the list. Another filter has no longer the name of a saved one. */
export function useFilters(): UrlState {
  const url = useUrlState();
  return { ...url, set: (changes, options) => url.set({ filter: undefined, ...changes }, options) };
}

/** The filters in the address, without order and page. */
export function searchOf(url: UrlState): string {
  const search = new URLSearchParams();
  for (const name of FILTERS) for (const value of url.all(name)) if (value !== '') search.append(name, value);
  return search.toString();
}
