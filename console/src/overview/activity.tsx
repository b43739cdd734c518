import { Link } from 'wouter-preact';
import type { SandboxSummary } from '../lib/api-types';
import type { Resource } from '../lib/use-resource';
import { counted } from './counted';
import { Part } from './part';

const WIDTH = 10;
const GAP = 2;
const HEIGHT = 80;

/** The starts and the failures of the latest hours, as bars. */
export function Activity({ summary }: { summary: Resource<SandboxSummary> }) {
  return (
    <Part
      title="Last 24 hours"
      resource={summary}
      more={<Link href="/audit?event_type=sandbox_started&event_type=sandbox_failed">Events</Link>}
    >
      {({ hours }) => {
        const started = hours.reduce((sum, hour) => sum + hour.started, 0);
        const failed = hours.reduce((sum, hour) => sum + hour.failed, 0);
        return (
          <>
            <p class="figures">
              <span>
                <b>{counted(started)}</b> {started === 1 ? 'start' : 'starts'}
              </span>
              <span class={failed > 0 ? 'bad' : ''}>
                <b>{counted(failed)}</b> {failed === 1 ? 'failure' : 'failures'}
              </span>
            </p>
            <Bars hours={hours} />
            <p class="axis" aria-hidden="true">
              <small>24 h ago</small>
              <small>now</small>
            </p>
          </>
        );
      }}
    </Part>
  );
}

function Bars({ hours }: { hours: SandboxSummary['hours'] }) {
  const most = Math.max(1, ...hours.map(({ started, failed }) => started + failed));
  const heightOf = (count: number) => (count / most) * HEIGHT;
  return (
    <svg
      class="bars"
      viewBox={`0 0 ${hours.length * (WIDTH + GAP) - GAP} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label="Starts and failures by hour"
    >
      {hours.map(({ hour, started, failed }, place) => {
        const x = place * (WIDTH + GAP);
        const [up, down] = [heightOf(started), heightOf(failed)];
        return (
          <g key={hour}>
            <title>{`${hour.slice(11, 16)} UTC: ${started} started, ${failed} failed`}</title>
            <rect class="bar-rest" x={x} y={0} width={WIDTH} height={HEIGHT} />
            <rect class="bar-good" x={x} y={HEIGHT - up} width={WIDTH} height={up} />
            <rect class="bar-bad" x={x} y={HEIGHT - up - down} width={WIDTH} height={down} />
          </g>
        );
      })}
    </svg>
  );
}
