import UPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import type { ChartData } from './chart';

const HEIGHT = 260;
const WIDTH_OF_DAY = 0.8;
const MOST_PIXELS = 40;
const HALF_DAY = 43_200;

/**
 * Draws the picture into `place` until the signal aborts. It follows the width of the page and the colours of the
 * system.
 */
export function drawChart(place: HTMLElement, data: ChartData, signal: AbortSignal): void {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  let chart = draw(place, data);
  const redraw = () => {
    chart.destroy();
    chart = draw(place, data);
  };
  dark.addEventListener('change', redraw, { signal });
  const resized = new ResizeObserver(() => chart.setSize({ width: place.clientWidth, height: HEIGHT }));
  resized.observe(place);
  signal.addEventListener('abort', () => {
    resized.disconnect();
    chart.destroy();
  });
}

function draw(place: HTMLElement, { days, names, amounts, textOf }: ChartData): UPlot {
  const styles = getComputedStyle(document.documentElement);
  const colour = (name: string) => styles.getPropertyValue(name).trim();
  const bars = UPlot.paths.bars!({ size: [WIDTH_OF_DAY, MOST_PIXELS] });
  const axis = {
    stroke: colour('--muted'),
    grid: { stroke: colour('--line'), width: 1 },
    ticks: { stroke: colour('--line'), width: 1 },
  };
  // Each bar has its height above zero: the tallest sum is drawn first, and those below cover it.
  const sums = amounts.map((_, index) =>
    days.map((_day, day) => amounts.slice(0, index + 1).reduce((sum, each) => sum + each[day]!, 0)),
  );
  const order = names.map((_, index) => index).toReversed();
  return new UPlot(
    {
      width: place.clientWidth,
      height: HEIGHT,
      legend: { show: true, live: true },
      tzDate: (seconds) => UPlot.tzDate(new Date(seconds * 1000), 'UTC'),
      cursor: { points: { show: false } },
      axes: [
        { ...axis, values: (_chart, days) => days.map((day) => dayOf(day).slice(5)) },
        { ...axis, size: 60 },
      ],
      scales: {
        x: { range: (_chart, first, last) => [first - HALF_DAY, last + HALF_DAY] },
        y: { range: (_chart, _least, most) => [0, most > 0 ? most * 1.05 : 1] },
      },
      series: [
        { label: 'UTC day', value: (_chart, seconds: number | null) => dayOf(seconds) },
        ...order.map((index) => ({
          label: names[index]!,
          fill: colour(`--series-${index}`),
          stroke: colour('--surface'),
          width: 1,
          paths: bars,
          points: { show: false },
          value: (_chart: UPlot, _sum: number | null, _series: number, day: number | null) =>
            day == null ? '–' : textOf(amounts[index]![day]!),
        })),
      ],
    },
    [days.map((day) => Date.parse(`${day}T00:00:00Z`) / 1000), ...order.map((index) => sums[index]!)],
    place,
  );
}

function dayOf(seconds: number | null): string {
  return seconds === null ? '–' : new Date(seconds * 1000).toISOString().slice(0, 10);
}
