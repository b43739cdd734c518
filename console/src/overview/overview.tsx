import { Link } from 'wouter-preact';
import { call } from '../lib/api';
import type { SandboxSummary } from '../lib/api-types';
import { useLive, useWhileChanging } from '../lib/live';
import { may, session } from '../lib/session';
import { isUnanswered, useResource } from '../lib/use-resource';
import { Page } from '../parts/page';
import { Activity } from './activity';
import { Attention } from './attention';
import { Capacity } from './capacity';
import { Cost } from './cost';
import { FirstSteps } from './first-steps';
import { GATHER_MS } from './gather';
import { NewestEvents } from './newest-events';
import './overview.css';
import { Statuses } from './statuses';

/** Their use grows without an event. */
const BUDGETS_MS = 30_000;

/** A session sees the parts that its scopes and labels open. */
export function Overview() {
  // The counts are those of the whole organization.
  const counts = may('sandboxes:read') && Object.keys(session.value?.labels ?? {}).length === 0;
  const summary = useResource(
    'summary',
    counts ? (signal) => call('GET /v1/sandboxes/summary', { signal }) : undefined,
  );
  const quota = useResource(
    'quotas',
    may('billing:read') ? (signal) => call('GET /v1/quotas', { signal }) : undefined,
  );
  const budgets = useResource(
    'budgets',
    may('billing:read') ? (signal) => call('GET /v1/budgets', { query: { limit: 100 }, signal }) : undefined,
  );
  useLive('billing', budgets.reload, GATHER_MS);
  useWhileChanging((budgets.data?.data.length ?? 0) > 0, budgets.reload, BUDGETS_MS);
  useLive('sandbox', summary.reload, GATHER_MS);
  useLive('sandbox', quota.reload, GATHER_MS);
  return (
    <Page
      title="Overview"
      actions={
        may('sandboxes:write') && (
          <Link class="button primary" href="/sandboxes?create=form">
            Create a sandbox
          </Link>
        )
      }
    >
      {counts && <Statuses summary={summary} />}
      {isEmpty(summary.data) && may('sandboxes:write') && <FirstSteps />}
      <div class="overview">
        <Attention
          summary={summary.data}
          quota={quota.data}
          budgets={budgets.data?.data ?? []}
          isPending={[summary, quota, budgets].some(isUnanswered)}
        />
        {counts && <Activity summary={summary} />}
        {may('billing:read') && <Capacity quota={quota} summary={summary.data} />}
        {may('billing:read') && <Cost budgets={budgets.data?.data ?? []} />}
        {may('events:read') && <NewestEvents />}
      </div>
    </Page>
  );
}

function isEmpty(summary: SandboxSummary | undefined): boolean {
  if (summary === undefined) return false;
  const { created, starting, running, stopping, stopped, failed, hours } = summary;
  const existing = created + starting + running + stopping + stopped + failed;
  return existing === 0 && hours.every(({ started }) => started === 0);
}
