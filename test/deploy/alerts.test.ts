import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { recordVerifications } from '../../src/audit/verify/verification-queries.js';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { Certificate } from '../../src/http/tls/certificate.js';
import { openMetrics } from '../../src/metrics/open-metrics.js';
import { makeBudget } from '../support/budgets.js';
import { Authority, pairFiles } from '../support/certificates.js';
import { until } from '../support/polling.js';
import { smallRequest } from '../support/sandbox-requests.js';
import { startForTest } from '../support/service.js';

const ALERTS = join(PACKAGE_ROOT, 'deploy', 'prometheus', 'alerts.yaml');
const DASHBOARD = join(PACKAGE_ROOT, 'deploy', 'grafana', 'sandkeep.json');
const RUNBOOK = join(PACKAGE_ROOT, 'docs', 'runbook.md');
const TABLE = join(PACKAGE_ROOT, 'docs', 'metrics.md');

interface Rule {
  alert: string;
  expr: string;
  annotations: { summary: string };
}

const read = (file: string) => readFileSync(file, 'utf8');
const rules = (parse(read(ALERTS)) as { groups: { rules: Rule[] }[] }).groups.flatMap(
  ({ rules: own }) => own,
);

/** Values of series, a minute apart, while all is well and while the alert fires: `from+step x times`, or one value. */
const CASES: Record<string, { series: string; well: string; ill: string }[]> = {
  SandkeepDown: [{ series: 'up', well: '1', ill: '0' }],
  SandkeepDatabaseDown: [{ series: 'sandkeep_database_up', well: '1', ill: '0' }],
  SandkeepRuntimeDown: [{ series: 'sandkeep_runtime_up{runtime="docker"}', well: '1', ill: '0' }],
  SandkeepServerErrors: [
    { series: requests('200'), well: '0+6000x60', ill: '0+6000x60' },
    { series: requests('500'), well: '0+6x60', ill: '0+600x60' },
  ],
  SandkeepSlowReads: [
    { series: bucket('0.5'), well: '0+990x60', ill: '0+600x60' },
    { series: bucket('1'), well: '0+1000x60', ill: '0+1000x60' },
    { series: bucket('+Inf'), well: '0+1000x60', ill: '0+1000x60' },
  ],
  SandkeepStartsWait: [{ series: 'sandkeep_placement_oldest_wait_seconds', well: '20', ill: '400' }],
  SandkeepRuntimeCallsFail: [
    {
      series: 'sandkeep_runtime_call_duration_seconds_count{call="start",outcome="failed"}',
      well: '3',
      ill: '0+2x60',
    },
  ],
  SandkeepWorkerWithoutProcess: [
    { series: 'sandkeep_worker_lease_remaining_seconds{worker="a",worker_id="1"}', well: '8', ill: '-100' },
  ],
  SandkeepGatewayEnds: [{ series: 'sandkeep_network_gateway_ends_total', well: '2', ill: '0+1x60' }],
  SandkeepEventLogStuck: [{ series: 'sandkeep_event_log_unsealed_oldest_seconds', well: '1', ill: '90' }],
  SandkeepEventLogNotVerified: [
    { series: 'sandkeep_event_log_verification_age_seconds', well: '2592000', ill: '2764800' },
  ],
  SandkeepMeteringLags: [{ series: 'sandkeep_metering_run_lag_seconds', well: '11', ill: '200' }],
  SandkeepVolumeReadingsLag: [{ series: 'sandkeep_metering_volume_lag_seconds', well: '3000', ill: '9000' }],
  SandkeepWebhooksBehind: [{ series: 'sandkeep_webhook_oldest_delivery_seconds', well: '60', ill: '4000' }],
  SandkeepWebhooksDisabled: [{ series: 'sandkeep_webhooks{state="disabled"}', well: '2', ill: '2x10 3x50' }],
  SandkeepDiskShort: [
    { series: disk('free'), well: '900', ill: '150' },
    { series: disk('reserve'), well: '100', ill: '100' },
  ],
  SandkeepDiskFull: [
    { series: disk('free'), well: '900', ill: '90' },
    { series: disk('reserve'), well: '100', ill: '100' },
  ],
  SandkeepLoopsFail: [{ series: 'sandkeep_loop_failures_total{loop="seal"}', well: '4', ill: '0+1x60' }],
  SandkeepEventLoopLags: [{ series: 'nodejs_eventloop_lag_p99_seconds', well: '0.02', ill: '0.9' }],
  SandkeepPoolExhausted: [
    { series: 'sandkeep_pool_connections{pool="requests",state="waiting"}', well: '0', ill: '3' },
  ],
  SandkeepDatabaseConnectionsShort: [
    { series: 'sandkeep_database_connections', well: '40', ill: '95' },
    { series: 'sandkeep_database_max_connections', well: '100', ill: '100' },
  ],
  SandkeepBackupOverdue: [
    { series: 'sandkeep_backup_age_seconds', well: '90000', ill: '180000' },
    { series: 'sandkeep_backup_interval_seconds', well: '86400', ill: '86400' },
  ],
  SandkeepWalArchiveFails: [{ series: 'sandkeep_wal_archive_waiting_seconds', well: '3', ill: '1000' }],
  SandkeepLongTransaction: [
    { series: 'sandkeep_database_longest_transaction_seconds', well: '2', ill: '5000' },
  ],
  // The clock of the tests begins in 1970.
  SandkeepCertificateExpires: [
    { series: 'sandkeep_tls_certificate_expiry_timestamp_seconds', well: '7000000', ill: '1000000' },
  ],
  SandkeepCertificateRefused: [{ series: 'sandkeep_tls_renewal_refused', well: '0', ill: '1' }],
  // A single lost batch, shortly before the evaluation, fires nothing.
  SandkeepTelemetryLost: [
    { series: exported('spans', 'exported'), well: '0+90x60', ill: '0+90x60' },
    { series: exported('spans', 'failed'), well: '0x37 64x23', ill: '0+1x60' },
    { series: exported('logs', 'dropped'), well: '0', ill: '0' },
  ],
};

function requests(status: string): string {
  return `http_server_request_duration_seconds_count{http_response_status_code="${status}"}`;
}

function bucket(le: string): string {
  return `http_server_request_duration_seconds_bucket{http_request_method="GET",http_route="/v1/sandboxes",le="${le}"}`;
}

function disk(what: string): string {
  return `sandkeep_disk_${what}_bytes{place="data"}`;
}

function exported(signal: string, outcome: string): string {
  return `sandkeep_telemetry_items_total{signal="${signal}",outcome="${outcome}"}`;
}

function inputOf(alert: string, state: 'well' | 'ill') {
  return CASES[alert]!.map((each) => {
    const [, name, labels] = /^(\w+)(?:\{(.*)\})?$/.exec(each.series)!;
    const scraped = ['job="sandkeep"', 'instance="a:9100"', ...(labels === undefined ? [] : [labels])];
    const values = /[x ]/.test(each[state]) ? each[state] : `${each[state]}x60`;
    return { series: `${name}{${scraped.join(',')}}`, values };
  });
}

const firing = (alert: string) => `count(ALERTS{alertstate="firing",alertname="${alert}"}) or vector(0)`;
const hasPromtool = spawnSync('promtool', ['--version']).status === 0;
const isRequired = process.env['SANDKEEP_TEST_PROMTOOL'] === 'required';
if (!hasPromtool && !isRequired)
  console.warn('the tests of alerts are SKIPPED: there is no promtool (Debian: prometheus)');

describe.skipIf(!hasPromtool && !isRequired)('alerts', () => {
  test.each(rules.map(({ alert }) => alert))('%s fires for its fault, and not without it', (alert) => {
    const directory = mkdtempSync(join(tmpdir(), 'sandkeep-alerts-'));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    const expected = (state: 'well' | 'ill') => ({
      interval: '1m',
      input_series: inputOf(alert, state),
      promql_expr_test: [
        {
          expr: firing(alert),
          eval_time: '40m',
          exp_samples: [{ labels: '{}', value: state === 'ill' ? 1 : 0 }],
        },
      ],
    });
    const file = join(directory, 'test.yaml');
    writeFileSync(
      file,
      stringify({
        rule_files: [ALERTS],
        evaluation_interval: '1m',
        tests: [expected('well'), expected('ill')],
      }),
    );
    const { status, stdout, stderr } = spawnSync('promtool', ['test', 'rules', file], { encoding: 'utf8' });
    expect(status, `${stdout}${stderr}`).toBe(0);
  });

  test('the exposition is what Prometheus accepts', async () => {
    const { stdout, stderr, status } = spawnSync('promtool', ['check', 'metrics'], {
      input: await scrapeAll(),
      encoding: 'utf8',
    });
    // The library names the metrics of Node and of the process; these names are advice, not errors.
    const own = `${stdout}${stderr}`.split('\n').filter((line) => /^(sandkeep|http)_/.test(line));
    expect([own, status === 0 || status === 3]).toEqual([[], true]);
  });
});

async function scrapeAll(): Promise<string> {
  const metrics = await openMetrics({ byOrg: true, freshMs: 0 });
  const service = await startForTest({ metrics });
  const log = { info: () => undefined, warn: () => undefined, error: () => undefined };
  service.ctx.certificate = new Certificate(pairFiles(new Authority().issue()), log);
  service.ctx.walWaitingSecs = () => 0;
  const client = await service.newOrg();
  await client.post('/v1/sandboxes', smallRequest('one'), { start: true, wait_for: 'running' });
  // The use is measured once the process has the lease, and the sums by organization begin with the first sample.
  await until(
    async () => Promise.resolve(service.ctx.use.isSampling),
    (isSampling) => isSampling,
  );
  await client.get('/v1/sandboxes/by-name/one/metrics');
  await service.ctx.pool.query('update quotas set max_sandboxes = 2');
  await makeBudget(client);
  await service.ctx.pool.query('update budgets set used_ratio = 0.5');
  await recordVerifications(service.ctx.pool, [{ orgId: client.org.id, entries: 1, fault: null }]);
  metrics.meters.loopFailed('seal');
  metrics.meters.telemetryExported('spans', 'failed', 1);
  metrics.meters.runEnded('stop_requested', 1);
  metrics.meters.previewAnswered('proxied', 0);
  metrics.meters.previewWoken('running', 0);
  return metrics.text(service.ctx);
}

describe('metrics', () => {
  test('every metric of an alert or of the dashboard is measured', async () => {
    const measured = new Set([...(await scrapeAll()).matchAll(/^([a-z]\w*)[{ ]/gm)].map(([, name]) => name));
    const used = [
      ...`${read(ALERTS)}${read(DASHBOARD)}`.matchAll(/\b(?:sandkeep|http_server|nodejs|process)_\w+/g),
    ];
    expect(used.length).toBeGreaterThan(30);
    expect(used.map(([name]) => name).filter((name) => !measured.has(name))).toEqual([]);
  });

  test('the documents have every metric of the service, with its help', async () => {
    const text = await scrapeAll();
    const documented = [
      ...read(TABLE).matchAll(/^\| `((?:sandkeep|http)_\w+)`\s+\| (\w+)\s+\| .*? \| (.*?)\s*\|$/gm),
    ];
    const helps = [...text.matchAll(/^# HELP ((?:sandkeep|http)_\w+) (.*)\n# TYPE \S+ (\w+)$/gm)];
    expect(new Map(documented.map(([, name, kind, help]) => [name, [kind, help]]))).toEqual(
      new Map(helps.map(([, name, help, kind]) => [name, [kind, help]])),
    );
  });

  test('every alert has a section in the runbook', () => {
    const sections = [...read(RUNBOOK).matchAll(/^## (Sandkeep\w+)$/gm)].map(([, name]) => name);
    expect(sections).toEqual(rules.map(({ alert }) => alert));
    expect(Object.keys(CASES)).toEqual(sections);
  });
});
