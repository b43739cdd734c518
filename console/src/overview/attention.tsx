import type { ComponentChildren } from 'preact';
import { useRef } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { spentOf } from '../budgets/words';
import { call } from '../lib/api';
import type {
  ApiKeyResponse,
  BudgetResponse,
  QuotaUsage,
  SandboxResponse,
  SandboxSummary,
} from '../lib/api-types';
import { useLive } from '../lib/live';
import { may } from '../lib/session';
import { isUnanswered, useResource } from '../lib/use-resource';
import { lastVerified } from '../lib/verified-log';
import { quotaRows } from '../organization/quota-rows';
import { Badge } from '../parts/badge';
import { NEAR } from '../parts/meter';
import { Time } from '../parts/time';
import { counted } from './counted';
import { GATHER_MS } from './gather';

const SHOWN = 4;
const DAY_MS = 86_400_000;
const SOON_DAYS = 14;
const VERIFIED_DAYS = 30;

interface AttentionProps {
  summary: SandboxSummary | undefined;
  quota: QuotaUsage | undefined;
  budgets: readonly BudgetResponse[];
  /** An answer is not there yet. */
  isPending: boolean;
}

/** Tasks for a person, the most urgent first. Each line leads to its place. */
export function Attention({ summary, quota, budgets, isPending }: AttentionProps) {
  const failed = useSandboxes('failed', summary?.failed);
  const starting = useSandboxes('starting', summary?.waiting);
  const keys = useResource(
    'attention:keys',
    may('keys:read') ? (signal) => call('GET /v1/keys', { query: { limit: 100 }, signal }) : undefined,
  );
  const webhooks = useResource(
    'attention:webhooks',
    may('org:admin') ? (signal) => call('GET /v1/webhooks', { query: { limit: 100 }, signal }) : undefined,
  );
  useLive('api_key', keys.reload, GATHER_MS);
  useLive('webhook', webhooks.reload, GATHER_MS);
  // Lines that come one after another would move away from the pointer.
  const isComplete = useRef(false);
  isComplete.current ||= !isPending && ![failed, starting, keys, webhooks].some(isUnanswered);
  if (!isComplete.current) return <section class="panel part-panel" aria-busy="true" />;
  const lines = [
    ...suspensionLines(quota),
    ...sandboxLines(failed.data?.data ?? [], summary?.failed ?? 0, 'failed'),
    ...sandboxLines(
      (starting.data?.data ?? []).filter(({ status_reason }) => status_reason === 'insufficient_capacity'),
      summary?.waiting ?? 0,
      'starting',
    ),
    ...quotaLines(quota),
    ...budgetLines(budgets),
    ...(webhooks.data?.data ?? [])
      .filter(({ failing_since, status }) => failing_since !== null || status === 'disabled')
      .map(({ id, url, status }) => (
        <>
          <Badge status={status === 'disabled' ? 'stopped' : 'failed'} />
          <Link href={`/webhooks/${id}`}>{url}</Link>
          <span class="line-rest">
            {status === 'disabled' ? 'the webhook is disabled' : 'every attempt of the webhook fails'}
          </span>
        </>
      )),
    ...(keys.data?.data ?? []).filter(endsSoon).map(({ name, expires_at }) => (
      <>
        <Badge status="expiring" />
        <Link href="/keys">{name}</Link>
        <span class="line-rest">
          the key expires <Time at={expires_at} relative />
        </span>
      </>
    )),
    ...(may('events:read') ? logLines() : []),
  ];
  const isKnown = [summary, quota, keys.data].some((data) => data !== undefined);
  if (lines.length === 0 && !isKnown) return null;
  return (
    <section class="panel part-panel" aria-labelledby="attention">
      <header>
        <h2 id="attention">Needs attention</h2>
      </header>
      {lines.length > 0 && (
        <ul class="lines">
          {lines.map((line, place) => (
            <li key={place}>{line}</li>
          ))}
        </ul>
      )}
      {lines.length === 0 && <p>Nothing that this session can see.</p>}
    </section>
  );
}

/** The newest of a status, while there are any. */
function useSandboxes(status: 'failed' | 'starting', count: number | undefined) {
  const isWanted = (count ?? 0) > 0;
  const list = useResource(
    `attention:${status}:${isWanted}`,
    isWanted
      ? (signal) => call('GET /v1/sandboxes', { query: { status: [status], limit: SHOWN }, signal })
      : undefined,
  );
  useLive('sandbox', list.reload, GATHER_MS);
  return list;
}

function sandboxLines(
  shown: readonly SandboxResponse[],
  count: number,
  status: 'failed' | 'starting',
): ComponentChildren[] {
  const lines: ComponentChildren[] = shown.map(({ id, name, last_failure_message: message }) => (
    <>
      <Badge status={status} />
      <Link href={`/sandboxes/${id}`}>{name}</Link>
      <span class="line-rest" title={message ?? undefined}>
        {message ?? (status === 'starting' ? 'waits for room on a worker' : '')}
      </span>
    </>
  ));
  if (count > shown.length && shown.length > 0) {
    lines.push(
      <Link href={`/sandboxes?status=${status}`}>
        All {counted(count)} {status === 'failed' ? 'failed' : 'waiting'} sandboxes
      </Link>,
    );
  }
  return lines;
}

function suspensionLines(quota: QuotaUsage | undefined): ComponentChildren[] {
  if (quota?.is_suspended !== true) return [];
  return [
    <>
      <Badge status="suspended" />
      <span class="line-rest">The operator has suspended this organization. Starts are refused.</span>
    </>,
  ];
}

function quotaLines(quota: QuotaUsage | undefined): ComponentChildren[] {
  if (quota === undefined) return [];
  return quotaRows(quota).flatMap(({ title, used, limit, words }) =>
    limit == null || used < limit * NEAR
      ? []
      : [
          <>
            <Badge status={used >= limit ? 'used up' : 'near'} />
            <Link href="/organization">{title}</Link>
            <span class="line-rest">
              {words(used)} of {words(limit)} used
            </span>
          </>,
        ],
  );
}

function budgetLines(budgets: readonly BudgetResponse[]): ComponentChildren[] {
  return budgets.flatMap((budget) => {
    const { name, state, action } = budget;
    if (state === 'ok') return [];
    if (state === 'unpriced') {
      return [
        <>
          <Badge status="not priced" />
          <Link href="/budgets">{name}</Link>
          <span class="line-rest">the budget enforces nothing without a price book in its currency</span>
        </>,
      ];
    }
    const isEnforced = state === 'exhausted' && action !== 'warn';
    return [
      <>
        <Badge status={state === 'exhausted' ? 'used up' : 'near'} />
        <Link href="/budgets">{name}</Link>
        <span class="line-rest">
          {spentOf(budget)} used{isEnforced && ', starts are refused'}
        </span>
      </>,
    ];
  });
}

function endsSoon({ revoked_at, expires_at }: ApiKeyResponse): boolean {
  if (revoked_at !== null || expires_at === null) return false;
  const left = Date.parse(expires_at) - Date.now();
  return left > 0 && left < SOON_DAYS * DAY_MS;
}

function logLines(): ComponentChildren[] {
  const at = lastVerified();
  if (at !== undefined && Date.now() - Date.parse(at) < VERIFIED_DAYS * DAY_MS) return [];
  return [
    <>
      <Badge status="unverified" />
      <Link href="/audit?verify=open">Verify the audit log</Link>
      <span class="line-rest">
        {at === undefined ? (
          'this browser never did'
        ) : (
          <>
            this browser did it <Time at={at} relative />
          </>
        )}
      </span>
    </>,
  ];
}
