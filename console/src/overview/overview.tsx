import { Link } from 'wouter-preact';
import { call } from '../lib/api';
import type { SandboxSummary } from '../lib/api-types';
import { useLive } from '../lib/live';
import { useResource } from '../lib/use-resource';
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

export function Overview() {
  const summary = useResource('summary', (signal) => call('GET /v1/sandboxes/summary', { signal }));
  const quota = useResource('quotas', (signal) => call('GET /v1/quotas', { signal }));
  useLive('sandbox', summary.reload, GATHER_MS);
  useLive('sandbox', quota.reload, GATHER_MS);
  return (
    <Page
      title="Overview"
      actions={
        <Link class="button primary" href="/sandboxes?create=form">
          Create a sandbox
        </Link>
      }
    >
      <Statuses summary={summary} />
      {isEmpty(summary.data) && <FirstSteps />}
      <div class="overview">
        <Attention summary={summary.data} quota={quota.data} />
        <Activity summary={summary} />
        <Capacity quota={quota} summary={summary.data} />
        <Cost />
        <NewestEvents />
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
