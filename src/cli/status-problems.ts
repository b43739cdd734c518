import type { Finding } from '../engine/finding.js';
import type { InstallationState } from './status-read.js';

export interface Problem {
  /** `warning`: the installation works, and the exit code stays 0. */
  severity: 'problem' | 'warning';
  message: string;
}

/** The limits are those of the alerts in deploy/prometheus/alerts.yaml. */
const LONGEST_WAIT_SECS = 300;
const LONGEST_UNSEALED_SECS = 60;
const LONGEST_UNSEEN_SECS = 120;
const LONGEST_READING_SECS = 7_200;
const LONGEST_DELIVERY_SECS = 3_600;
const LONGEST_TRANSACTION_SECS = 3_600;
const MOST_CONNECTIONS = 0.9;
const VERIFY_EVERY_SECS = 31 * 86_400;

/** A placement takes a moment, so a start that has only begun to wait is no sign of a lack. */
const LONGEST_PLACEMENT_SECS = 10;

export function isShortOfRoom({ runs, reasons, oldest_secs }: InstallationState['waiting']): boolean {
  return runs > 0 && ((reasons['insufficient_capacity'] ?? 0) > 0 || oldest_secs > LONGEST_PLACEMENT_SECS);
}

/** `findings`: of the keys and disks of this machine. */
export function problemsOf(state: InstallationState, findings: readonly Finding[]): Problem[] {
  const { workers, waiting, event_log, webhooks, metering, database } = state;
  const { verification } = event_log;
  const found: [Problem['severity'], boolean, string][] = [
    [
      'problem',
      workers.length === 0 && waiting.runs > 0,
      'there is no worker, and starts wait: run "sandkeep serve"',
    ],
    [
      'problem',
      waiting.oldest_secs > LONGEST_WAIT_SECS,
      `a start has waited for ${duration(waiting.oldest_secs)}: see "sandkeep worker list"`,
    ],
    [
      'problem',
      event_log.oldest_secs > LONGEST_UNSEALED_SECS,
      `${event_log.unsealed} audit events are not in the log, the oldest for ${duration(event_log.oldest_secs)}: look for "a loop failed" in the log of the service`,
    ],
    [
      'problem',
      verification.faults > 0,
      `event logs whose last verification found a fault: ${verification.faults}; run "sandkeep events verify"`,
    ],
    [
      'problem',
      metering.runs > LONGEST_UNSEEN_SECS,
      `no worker has seen a run for ${duration(metering.runs)}: check its engine`,
    ],
    [
      'warning',
      metering.volumes > LONGEST_READING_SECS,
      `a volume was not measured for ${duration(metering.volumes)}`,
    ],
    [
      'problem',
      webhooks.oldest_secs > LONGEST_DELIVERY_SECS,
      `a delivery to a webhook is ${duration(webhooks.oldest_secs)} old: see "sandkeep webhook deliveries"`,
    ],
    ['warning', webhooks.failing > 0, `${webhooks.failing} webhooks fail`],
    [
      'warning',
      webhooks.disabled_by_service > 0,
      `${webhooks.disabled_by_service} webhooks were disabled, because they failed`,
    ],
    [
      'warning',
      verification.never > 0,
      `event logs that were never verified: ${verification.never}; run "sandkeep events verify"`,
    ],
    [
      'warning',
      (verification.oldest_secs ?? 0) > VERIFY_EVERY_SECS,
      `an event log was not verified for ${duration(verification.oldest_secs ?? 0)}: run "sandkeep events verify"`,
    ],
    [
      'problem',
      database.connections > database.max_connections * MOST_CONNECTIONS,
      `${database.connections} of ${database.max_connections} connections of the database are used: raise max_connections`,
    ],
    [
      'warning',
      database.longest_secs > LONGEST_TRANSACTION_SECS,
      `a transaction of the database is ${duration(database.longest_secs)} old`,
    ],
  ];
  return [
    ...workers
      .filter(({ alive }) => !alive)
      .map(({ name, lease_remaining_secs: left }): Problem => {
        const message = `no process acts on the engine of the worker ${name} for ${duration(-left)}: start its service, or run "sandkeep worker remove"`;
        return { severity: 'problem', message };
      }),
    ...waiting.needs.map(({ words, runs }): Problem => {
      const starts = runs === 1 ? '1 start waits' : `${runs} starts wait`;
      return { severity: 'warning', message: `${starts} for room: ${words}` };
    }),
    ...found.filter(([, holds]) => holds).map(([severity, , message]) => ({ severity, message })),
    ...findings
      .filter(({ state: each }) => each !== 'ok')
      .map(({ check, state: each, found: what, remedy }): Problem => {
        const severity = each === 'broken' || check.endsWith('disk') ? 'problem' : 'warning';
        return { severity, message: `${check}: ${what}${remedy === undefined ? '' : `: ${remedy}`}` };
      }),
  ];
}

/** In the largest unit that it fills: 90 s, 5 min, 3 h, 2 d. */
export function duration(seconds: number): string {
  const units = [
    [86_400 * 2, 86_400, 'd'],
    [7_200, 3_600, 'h'],
    [120, 60, 'min'],
  ] as const;
  const [, size, name] = units.find(([from]) => seconds >= from) ?? [0, 1, 's'];
  return `${Math.floor(seconds / size)} ${name}`;
}
