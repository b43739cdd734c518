import { useEffect, useRef } from 'preact/hooks';
import { theme } from '../lib/preferences';

export interface ChartData {
  days: readonly string[];
  names: readonly string[];
  /** For each name, an amount for each day. */
  amounts: readonly (readonly number[])[];
  /** The text of an amount. */
  textOf: (amount: number) => string;
}

/** Stacked bars, one for each day. A table beside it has the same figures for those who cannot see it. */
export function Chart({ caption, ...data }: ChartData & { caption: string }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const target = place.current;
    if (target === null) return undefined;
    const controller = new AbortController();
    const draw = async () => {
      const { drawChart } = await import('./draw-chart');
      if (!controller.signal.aborted) drawChart(target, data, controller.signal);
    };
    void draw();
    return () => controller.abort();
  }, [JSON.stringify(data), theme.value]);
  return <div ref={place} class="chart" role="img" aria-label={caption} />;
}
