import { call } from '../lib/api';
import type { ApiKeyResponse } from '../lib/api-types';
import { may } from '../lib/session';
import { useResource, type Resource } from '../lib/use-resource';

const PAGE = 100;

/** All keys of the organization. Nothing for a session that may not read them. */
export function useKeys(): Resource<readonly ApiKeyResponse[]> {
  return useResource('budgets:keys', may('keys:read') ? allKeys : undefined);
}

async function allKeys(signal: AbortSignal): Promise<readonly ApiKeyResponse[]> {
  const found: ApiKeyResponse[] = [];
  let cursor: string | undefined;
  do {
    const page = await call('GET /v1/keys', { query: { limit: PAGE, cursor }, signal });
    found.push(...page.data);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
  return found;
}
