import { addressOf, Problem, request } from '../lib/api';
import type { LabelBreakdown, StorageBreakdown, UsageBreakdown } from '../lib/api-types';
import { majorMoney } from '../lib/money';
import { COMPUTE, hours, STORAGE, type ComputeMetric, type Metric } from './metrics';
import type { Amount } from './series';
import type { Window } from './window';

/** A longer report would fill the memory of the browser. */
const MOST_BYTES = 32 * 1024 * 1024;

export interface Asked extends Window {
  metric: Metric;
  /** The keys of labels; none: by sandbox. Storage is always by volume. */
  keys: readonly string[];
}

export interface Report {
  amounts: Amount[];
  /** The unit of the amounts. */
  unit: string;
  textOf: (amount: number) => string;
  /** By label, if the installation has prices. */
  costs?: { amounts: Amount[]; currency: string; textOf: (amount: number) => string } | undefined;
  /** The words for an owner. */
  nameOf: (owner: string) => string;
  /** The page of an owner, if it has one. */
  pageOf: (owner: string) => string | undefined;
}

export async function readReport(
  { metric, keys, since, until }: Asked,
  signal: AbortSignal,
): Promise<Report> {
  const window = { since, until };
  if (metric === 'storage') {
    const report = await read<StorageBreakdown>('/v1/billing/usage/storage', window, signal);
    const names = new Map(report.volumes.map(({ id, name }) => [id, name ?? 'Host volume']));
    return {
      amounts: report.rows.map((row) => ({
        day: row.day.slice(0, 10),
        owner: row.volume_id,
        amount: STORAGE.of(row),
      })),
      nameOf: (owner) => names.get(owner) ?? `deleted volume ${owner}`,
      pageOf: (owner) => (names.has(owner) ? `/volumes/${owner}` : undefined),
      unit: STORAGE.unit,
      textOf: hours,
    };
  }
  return keys.length > 0 || metric === 'cost'
    ? byLabels(metric, keys, window, signal)
    : bySandbox(metric, window, signal);
}

async function bySandbox(metric: ComputeMetric, window: Window, signal: AbortSignal): Promise<Report> {
  const report = await read<UsageBreakdown>('/v1/billing/usage/sandbox', window, signal);
  const names = new Map(report.sandboxes.map(({ id, name }) => [id, name]));
  return {
    amounts: report.rows.map((row) => ({
      day: row.day.slice(0, 10),
      owner: row.sandbox_id,
      amount: COMPUTE[metric].of(row),
    })),
    nameOf: (owner) => names.get(owner) ?? owner,
    pageOf: (owner) => `/sandboxes/${owner}`,
    unit: COMPUTE[metric].unit,
    textOf: hours,
  };
}

async function byLabels(
  metric: ComputeMetric | 'cost',
  keys: readonly string[],
  window: Window,
  signal: AbortSignal,
): Promise<Report> {
  const query = { key: keys, ...window };
  const report = await read<LabelBreakdown>('/v1/billing/usage/labels', query, signal);
  const none = keys.map(() => null);
  const rows = [...report.rows, ...report.unlabelled.map((row) => ({ ...row, values: none }))];
  const amountsOf = (of: (row: (typeof rows)[number]) => number) =>
    rows.map((row) => ({ day: row.day.slice(0, 10), owner: JSON.stringify(row.values), amount: of(row) }));
  const { currency, minor_unit_digits } = report;
  const costs =
    currency === null
      ? undefined
      : {
          currency,
          amounts: amountsOf(({ cost }) => Number(cost)),
          textOf: (amount: number) => majorMoney(amount, currency, minor_unit_digits ?? 2),
        };
  const compute = metric === 'cost' ? undefined : COMPUTE[metric];
  return {
    amounts: compute === undefined ? (costs?.amounts ?? []) : amountsOf(compute.of),
    unit: compute?.unit ?? currency ?? '',
    textOf: compute === undefined && costs !== undefined ? costs.textOf : hours,
    costs,
    nameOf: (owner) =>
      valuesOf(owner)
        .map((value, place) => (value === null ? `without ${keys[place]!}` : value || '(empty)'))
        .join(' · '),
    pageOf: (owner) => {
      const values = valuesOf(owner);
      // The list of sandboxes has no filter for a missing label.
      if (values.includes(null)) return undefined;
      const labels = Object.fromEntries(keys.map((key, place) => [key, values[place]]));
      return `/?labels=${encodeURIComponent(JSON.stringify(labels))}`;
    },
  };
}

const valuesOf = (owner: string) => JSON.parse(owner) as (string | null)[];

async function read<T>(path: string, query: object, signal: AbortSignal): Promise<T> {
  const answer = await request(addressOf(path, {}, query), { signal });
  const decoder = new TextDecoder();
  let text = '';
  let bytes = 0;
  for (const reader = answer.body!.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) break;
    bytes += value.length;
    if (bytes > MOST_BYTES) {
      await reader.cancel();
      const message =
        'The report is longer than 32 MiB: choose fewer days or a label, or ask the API for CSV';
      throw new Problem(413, 'report_too_long', message, {}, answer.headers.get('x-request-id'), null);
    }
    text += decoder.decode(value, { stream: true });
  }
  return JSON.parse(text + decoder.decode()) as T;
}
