import UPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

const HEIGHT = 44;
const LEAST_TOP = 1;

/** Draws a line without axes into `place` until the signal aborts. Returns the function that shows other values. */
export function drawSparkline(
  place: HTMLElement,
  signal: AbortSignal,
): (times: readonly number[], values: readonly (number | null)[]) => void {
  const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const chart = new UPlot(
    {
      width: place.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      axes: [{ show: false }, { show: false }],
      padding: [2, 0, 2, 0],
      scales: { y: { range: (_chart, _least, most) => [0, Math.max(most, LEAST_TOP) * 1.05] } },
      series: [{}, { stroke: colour('--accent'), width: 1.5, points: { show: false }, spanGaps: true }],
    },
    [[], []],
    place,
  );
  const resized = new ResizeObserver(() => chart.setSize({ width: place.clientWidth, height: HEIGHT }));
  resized.observe(place);
  signal.addEventListener('abort', () => {
    resized.disconnect();
    chart.destroy();
  });
  return (times, values) => chart.setData([[...times], [...values]]);
}
