import UPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

const HEIGHT = 130;
const KIB = 1024;
const MOST_POWER = 50;
/** Steps of an axis of bytes: round numbers of them are powers of two. */
const BYTE_STEPS = Array.from({ length: MOST_POWER }, (_, power) => 2 ** power);
const MINUTE = 60;
const STROKES = ['--accent', '--second'];

interface Options {
  lines: readonly string[];
  /** An amount in words, for the axis. */
  words: (amount: number) => string;
  isBytes: boolean;
  /** In the local zone or in UTC. */
  isUtc: boolean;
}

/**
 * Draws lines over time into `place` until the signal aborts. The cursors of all pictures move together. Returns the
 * function that shows other values.
 */
export function drawUse(
  place: HTMLElement,
  { lines, words, isBytes, isUtc }: Options,
  signal: AbortSignal,
): (times: readonly number[], values: readonly (readonly (number | null)[])[]) => void {
  // A drawing asks again, so that it follows the colours of the system.
  const colour = (name: string) => () =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = {
    stroke: colour('--muted'),
    grid: { stroke: colour('--line'), width: 1 },
    ticks: { show: false },
  };
  const chart = new UPlot(
    {
      width: place.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      padding: [8, 8, 0, 0],
      ...(isUtc ? { tzDate: (seconds: number) => UPlot.tzDate(new Date(seconds * 1000), 'UTC') } : {}),
      cursor: { y: false, points: { size: 6 }, sync: { key: 'use' }, drag: { x: false, y: false } },
      axes: [
        {
          ...axis,
          size: 24,
          space: 70,
          values: (_chart, times, _axis, _space, step) =>
            times.map((time) => clockOf(time, isUtc).slice(0, step < MINUTE ? undefined : -3)),
        },
        {
          ...axis,
          size: 72,
          space: 34,
          ...(isBytes ? { incrs: BYTE_STEPS } : {}),
          values: (_chart, amounts) => amounts.map((amount) => words(amount)),
        },
      ],
      scales: { y: { range: (_chart, _least, most) => [0, Math.max(most, isBytes ? KIB : 1) * 1.1] } },
      series: [
        {},
        ...lines.map((label, index) => ({
          label,
          stroke: colour(STROKES[index] ?? '--accent'),
          width: 1.5,
          points: { show: false },
          spanGaps: true,
        })),
      ],
    },
    [[], ...lines.map(() => [])],
    place,
  );
  const resized = new ResizeObserver(() => chart.setSize({ width: place.clientWidth, height: HEIGHT }));
  resized.observe(place);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => chart.redraw(false, true), {
    signal,
  });
  signal.addEventListener('abort', () => {
    resized.disconnect();
    chart.destroy();
  });
  return (times, values) => chart.setData([[...times], ...values.map((line) => [...line])]);
}

/** Hours, minutes and seconds. */
function clockOf(seconds: number, isUtc: boolean): string {
  const date = new Date(seconds * 1000);
  const local = new Date(date.getTime() - (isUtc ? 0 : date.getTimezoneOffset() * 60_000));
  return local.toISOString().slice(11, 19);
}
