import type { BudgetResponse } from '../lib/api-types';
import './bar.css';
import { forecastPercent } from './words';

const HEIGHT = 8;
/** A threshold reaches below the bar. */
const TICK = 12;

/** The use of a month against its limit, with the forecast and the thresholds. The whole width is 100 %. */
export function BudgetBar({ of }: { of: BudgetResponse }) {
  const used = of.used_percent ?? 0;
  const forecast = forecastPercent(of) ?? 0;
  const label =
    of.used_percent === null
      ? `${of.name}: not priced`
      : `${of.name}: ${used} % used, ${forecast} % by the forecast`;
  return (
    <svg
      class={`budget-bar ${of.state}`}
      viewBox={`0 0 100 ${TICK}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      <rect class="budget-rest" width={100} height={HEIGHT} />
      <rect class="budget-forecast" width={Math.min(100, forecast)} height={HEIGHT} />
      <rect class="budget-used" width={Math.min(100, used)} height={HEIGHT} />
      {of.thresholds
        .filter((threshold) => threshold < 100)
        .map((threshold) => (
          <line key={threshold} class="budget-tick" x1={threshold} x2={threshold} y1={0} y2={TICK} />
        ))}
    </svg>
  );
}
