import type { EventResponse, SandboxResponse } from '../lib/api-types';
import { timeZone } from '../lib/preferences';
import { dateTime, duration } from '../lib/time';
import { Time } from '../parts/time';
import { factsOf } from './history';
import './sandbox.css';
import { inWords } from './words';

/** The events that end a run. */
export const ENDS = ['sandbox_stopped', 'sandbox_paused', 'sandbox_failed', 'sandbox_run_closed'];

const WIDTH = 1000;
const HEIGHT = 34;
const LEAST_WIDTH = 3;
const LEAST_WINDOW_MS = 600_000;

interface Run {
  from: number;
  to: number;
  tone: 'good' | 'bad' | 'calm';
  text: string;
}

/** The runs as bars over time. Each has its reason as a tooltip; the table of runs has the same in words. */
export function RunStrip({ sandbox, ends }: { sandbox: SandboxResponse; ends: readonly EventResponse[] }) {
  const now = Date.now();
  const runs = runsOf(sandbox, ends, now);
  if (runs.length === 0) return null;
  const since = Math.min(now - LEAST_WINDOW_MS, ...runs.map(({ from }) => from));
  const xOf = (time: number) => ((time - since) / (now - since)) * WIDTH;
  const first = new Date(since).toISOString();
  const label = `${runs.length} ${runs.length === 1 ? 'run' : 'runs'} since ${dateTime(first, timeZone.value)}`;
  return (
    <div>
      <svg
        class="runs-picture"
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={label}
      >
        <rect class="run-rest" width={WIDTH} height={HEIGHT} rx={3} />
        {runs.map(({ from, to, tone, text }) => {
          const width = Math.max(LEAST_WIDTH, xOf(to) - xOf(from));
          return (
            <rect
              key={from}
              class={`run-${tone}`}
              x={Math.min(xOf(from), WIDTH - width)}
              width={width}
              height={HEIGHT}
            >
              <title>{text}</title>
            </rect>
          );
        })}
      </svg>
      <p class="axis" aria-hidden="true">
        <small>
          <Time at={first} />
        </small>
        <small>now</small>
      </p>
    </div>
  );
}

export function runsOf(sandbox: SandboxResponse, ends: readonly EventResponse[], now: number): Run[] {
  const ended = ends.flatMap((event): Run[] => {
    const { started_at, stopped_at } = factsOf(event);
    if (started_at == null || stopped_at == null) return [];
    const [from, to] = [Date.parse(started_at), Date.parse(stopped_at)];
    const tone = event.event_type === 'sandbox_failed' ? 'bad' : 'calm';
    return [{ from, to, tone, text: `${duration((to - from) / 1000)}: ${inWords(event)}` }];
  });
  if (sandbox.status !== 'running' || sandbox.started_at == null) return ended;
  const from = Date.parse(sandbox.started_at);
  return [{ from, to: now, tone: 'good', text: `Runs for ${duration((now - from) / 1000)}` }, ...ended];
}
