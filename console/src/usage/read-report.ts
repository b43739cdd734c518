import { addressOf, Problem, request } from '../lib/api';
import type { LabelBreakdown, StorageBreakdown, UsageBreakdown } from '../lib/api-types';
import { COMPUTE, STORAGE, type ComputeMetric, type Metric } from './metrics';
import type { Amount } from './series';
import type { Window } from './window';

/** A longer report would fill the memory of the browser. */
const MOST_BYTES = 32 * 1024 * 1024;

export interface Asked extends Window {
  metric: Metric;
  /** The key of a label; empty: by sandbox. Storage is always by volume. */
  label: string;
}

export interface Report {
  amounts: Amount[];
  /** The words for an owner. */
  nameOf: (owner: string) => string;
  /** The page of an owner, if it has one. */
  pageOf: (owner: string) => string | undefined;
}

const UNLABELLED = '';

export async function readReport(
  { metric, label, since, until }: Asked,
  signal: AbortSignal,
): Promise<Report> {
  const window = { since, until };
  if (metric === 'storage') {
    const report = await read<StorageBreakdown>('/v1/billing/usage/storage', window, signal);
    const names = new Map(report.volumes.map(({ id, name }) => [id, name ?? 'Host volume']));
    return {
      amounts: report.rows.map((row) => ({
        ...{ day: row.day.slice(0, 10), owner: row.volume_id, amount: STORAGE.of(row) },
      })),
      nameOf: (owner) => names.get(owner) ?? `deleted volume ${owner}`,
      pageOf: (owner) => (names.has(owner) ? `/volumes/${owner}` : undefined),
    };
  }
  return label === '' ? bySandbox(metric, window, signal) : byLabel(metric, label, window, signal);
}

async function bySandbox(metric: ComputeMetric, window: Window, signal: AbortSignal): Promise<Report> {
  const report = await read<UsageBreakdown>('/v1/billing/usage/sandbox', window, signal);
  const names = new Map(report.sandboxes.map(({ id, name }) => [id, name]));
  return {
    amounts: report.rows.map((row) => ({
      ...{ day: row.day.slice(0, 10), owner: row.sandbox_id, amount: COMPUTE[metric].of(row) },
    })),
    nameOf: (owner) => names.get(owner) ?? owner,
    pageOf: (owner) => `/sandboxes/${owner}`,
  };
}

async function byLabel(
  metric: ComputeMetric,
  key: string,
  window: Window,
  signal: AbortSignal,
): Promise<Report> {
  const report = await read<LabelBreakdown>('/v1/billing/usage/labels', { key, ...window }, signal);
  const { of } = COMPUTE[metric];
  return {
    amounts: [
      ...report.rows.map((row) => ({ day: row.day.slice(0, 10), owner: `=${row.value}`, amount: of(row) })),
      ...report.unlabelled.map((row) => ({ day: row.day.slice(0, 10), owner: UNLABELLED, amount: of(row) })),
    ],
    nameOf: (owner) => (owner === UNLABELLED ? `without ${key}` : owner.slice(1) || '(empty)'),
    pageOf: (owner) =>
      owner === UNLABELLED
        ? undefined
        : `/?labels=${encodeURIComponent(JSON.stringify({ [key]: owner.slice(1) }))}`,
  };
}

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
