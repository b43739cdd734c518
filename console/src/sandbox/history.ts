import { call } from '../lib/api';
import type { EventResponse, SandboxResponse } from '../lib/api-types';
import { useLive } from '../lib/live';
import { may } from '../lib/session';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';

const PAGE_SIZE = 50;

/** Payloads of events about a sandbox: docs/audit-events.md. */
interface SandboxFacts {
  run_id?: string | null;
  reason?: string;
  message?: string | null;
  exit_code?: number | null;
  signal?: number | null;
  oom_killed?: boolean | null;
  started_at?: string | null;
  stopped_at?: string | null;
  domain?: string | null;
  address?: string | null;
  port?: number | null;
  secret?: string;
}

export const factsOf = ({ payload }: EventResponse) => (payload ?? {}) as SandboxFacts;

/** The audit events of a sandbox, newest first. Nothing is loaded for a session that may not read them. */
export function useHistory({ id }: SandboxResponse, types?: string[]) {
  const cursor = useUrlState().get('cursor') || undefined;
  const key = `history:${id}:${types?.join() ?? ''}:${cursor ?? ''}`;
  const events = useResource(
    key,
    may('events:read')
      ? (signal) =>
          call('GET /v1/events', {
            query: { resource_id: [id], event_type: types, cursor, limit: PAGE_SIZE },
            signal,
          })
      : undefined,
  );
  useLive('sandbox', events.reload);
  return events;
}
