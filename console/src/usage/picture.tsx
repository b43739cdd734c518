import { useMemo, useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { csvLines } from '../../../src/lib/csv';
import { withoutNoise } from '../lib/money';
import { save } from '../lib/save';
import { useUrlState } from '../lib/url-state';
import { Table, type Column } from '../parts/table';
import { Chart } from './chart';
import { METRICS, type Metric } from './metrics';
import type { Report } from './read-report';
import { stack, sumByOwner, type Series } from './series';
import { daysOf, type Window } from './window';

/** More could not be told apart. */
const MOST_APART = 8;
const PAGE = 50;

interface PictureProps {
  report: Report;
  metric: Metric;
  window: Window;
  /** The keys of labels. */
  keys: readonly string[];
}

/** The use by day as a picture and as a table with the same figures, then all owners with their sums. */
export function Picture({ report, metric, window, keys }: PictureProps) {
  const url = useUrlState();
  const only = url.get('only');
  const days = useMemo(() => daysOf(window), [window.since, window.until]);
  const amounts = useMemo(
    () =>
      only === '' ? report.amounts : report.amounts.filter(({ owner }) => report.nameOf(owner) === only),
    [report, only],
  );
  const stacked = useMemo(() => stack(amounts, days, MOST_APART), [amounts, days]);
  const { title } = METRICS[metric];
  const { unit, textOf } = report;
  const shown = stacked.others === undefined ? stacked.series : [...stacked.series, stacked.others];
  const nameOf = (series: Series) =>
    series === stacked.others ? `${stacked.otherCount} others` : report.nameOf(series.owner);
  const caption = `${title} in ${unit}, by day`;
  const columns: readonly Column<number>[] = [
    { title: 'UTC day', cell: (place) => days[place]! },
    ...shown.map((series) => ({
      title: nameOf(series),
      isNumber: true,
      cell: (place: number) => textOf(series.amounts[place]!),
    })),
    { title: 'Sum', cell: (place) => <b>{textOf(stacked.totals[place]!)}</b>, isNumber: true },
  ];
  const places = days.map((_, place) => place).toReversed();
  const csv = () => [
    ['UTC day', ...shown.map((series) => `${nameOf(series)}, ${unit}`), `Sum, ${unit}`],
    ...places.map((place) => [
      days[place]!,
      ...[...shown.map((series) => series.amounts[place]!), stacked.totals[place]!].map(withoutNoise),
    ]),
  ];
  return (
    <>
      <ul class="legend">
        {shown.map((series, index) => (
          <li key={index}>
            <button
              type="button"
              aria-pressed={only !== '' && nameOf(series) === only}
              disabled={series === stacked.others}
              onClick={() => url.set({ only: only === '' ? nameOf(series) : undefined })}
            >
              <svg class="swatch" viewBox="0 0 10 10" aria-hidden="true">
                <rect class={`fill-${index}`} width="10" height="10" />
              </svg>
              {index + 1} {nameOf(series)} <small>{textOf(series.total)}</small>
            </button>
          </li>
        ))}
      </ul>
      {only !== '' && (
        <p>
          <button type="button" onClick={() => url.set({ only: undefined })}>
            Show all
          </button>
        </p>
      )}
      <Chart
        caption={`${caption}. The table below has the same figures.`}
        days={days}
        names={shown.map(nameOf)}
        amounts={shown.map((series) => series.amounts)}
        textOf={textOf}
      />
      <div class="actions">
        <h3>{caption}</h3>
        <Download of={csv} name={`usage-${metric}-${window.since}.csv`} label="Download these days as CSV" />
      </div>
      <Table
        caption={caption}
        columns={columns}
        rows={places}
        id={(place) => days[place]!}
        name={(place) => days[place]!}
      />
      <Owners report={report} metric={metric} days={days} keys={keys} since={window.since} />
    </>
  );
}

interface OwnersProps {
  report: Report;
  metric: Metric;
  days: readonly string[];
  keys: readonly string[];
  since: string;
}

function Owners({ report, metric, days, keys, since }: OwnersProps) {
  const [page, setPage] = useState(0);
  const owners = useMemo(() => sumByOwner(report.amounts, days), [report, days]);
  const { unit, textOf } = report;
  const costs = metric === 'cost' ? undefined : report.costs;
  const costOf = useMemo(
    () => new Map(sumByOwner(costs?.amounts ?? [], days).map(({ owner, total }) => [owner, total])),
    [costs, days],
  );
  const kind =
    metric === 'storage' ? 'volume' : keys.length === 0 ? 'sandbox' : `value of ${keys.join(' and ')}`;
  const caption = `Sums by ${kind}`;
  const columns: readonly Column<Series>[] = [
    {
      title: kind,
      cell: ({ owner }) => {
        const address = report.pageOf(owner);
        return address === undefined ? (
          report.nameOf(owner)
        ) : (
          <Link href={address}>{report.nameOf(owner)}</Link>
        );
      },
    },
    { title: unit, cell: ({ total }) => textOf(total), isNumber: true },
    ...(costs === undefined
      ? []
      : [
          {
            title: 'Cost',
            isNumber: true,
            cell: ({ owner }: Series) => costs.textOf(costOf.get(owner) ?? 0),
          },
        ]),
  ];
  const csv = () => [
    [kind, unit, ...(costs === undefined ? [] : [`Cost, ${costs.currency}`])],
    ...owners.map(({ owner, total }) => [
      report.nameOf(owner),
      withoutNoise(total),
      ...(costs === undefined ? [] : [withoutNoise(costOf.get(owner) ?? 0)]),
    ]),
  ];
  return (
    <>
      <div class="actions">
        <h3>{caption}</h3>
        <Download of={csv} name={`usage-${metric}-sums-${since}.csv`} label="Download these sums as CSV" />
      </div>
      <Table
        caption={caption}
        columns={columns}
        rows={owners.slice(page * PAGE, (page + 1) * PAGE)}
        id={({ owner }) => owner}
        name={({ owner }) => report.nameOf(owner)}
      />
      {owners.length > PAGE && (
        <nav class="pager" aria-label="Pages of the sums">
          <button type="button" disabled={page === 0} onClick={() => setPage(page - 1)}>
            Previous page
          </button>
          <span>
            {page * PAGE + 1} to {Math.min(owners.length, (page + 1) * PAGE)} of {owners.length}
          </span>
          <button
            type="button"
            disabled={(page + 1) * PAGE >= owners.length}
            onClick={() => setPage(page + 1)}
          >
            Next page
          </button>
        </nav>
      )}
    </>
  );
}

function Download(props: { of: () => (string | number)[][]; name: string; label: string }) {
  return (
    <button
      type="button"
      aria-label={props.label}
      onClick={() => save(new Blob([csvLines(props.of())], { type: 'text/csv' }), props.name)}
    >
      CSV
    </button>
  );
}
