import { call } from '../lib/api';

type ListQuery = NonNullable<NonNullable<Parameters<typeof call<'GET /v1/sandboxes'>>[1]>['query']>;

/** The next page that lists a sandbox. A search by the middle of a name answers with empty pages before it. */
export async function pageWithMatches(query: ListQuery, signal: AbortSignal) {
  let page = await call('GET /v1/sandboxes', { query, signal });
  while (page.data.length === 0 && page.next_cursor != null) {
    page = await call('GET /v1/sandboxes', { query: { ...query, cursor: page.next_cursor }, signal });
  }
  return page;
}
