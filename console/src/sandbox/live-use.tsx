import { useEffect, useRef, useState } from 'preact/hooks';
import { addressOf, call } from '../lib/api';
import type { SandboxMetrics, SandboxMetricsSample, SandboxResponse } from '../lib/api-types';
import { bytes } from '../lib/bytes';
import { followStream } from '../lib/event-stream';
import { theme } from '../lib/preferences';
import { useResource } from '../lib/use-resource';
import { Loaded } from '../parts/loaded';
import { ratesOf, type Rates } from './use-rates';

/** An hour of points and some minutes of samples. */
const MOST_SAMPLES = 600;

/** The use of a running sandbox: figures, and a line of the last hour each. */
export function LiveUse({ sandbox }: { sandbox: SandboxResponse }) {
  const metrics = useResource(`metrics:${sandbox.id}:${sandbox.started_at}`, (signal) =>
    call('GET /v1/sandboxes/{sandbox_id}/metrics', { path: { sandbox_id: sandbox.id }, signal }),
  );
  return (
    <section class="panel" aria-labelledby="live-use">
      <h2 id="live-use">Use</h2>
      <Loaded resource={metrics}>
        {(data) =>
          data.unavailable_reason === 'disabled' ? (
            <p>Its specification turns samples off.</p>
          ) : (
            <Lines key={sandbox.started_at} metrics={data} sandbox={sandbox} />
          )
        }
      </Loaded>
    </section>
  );
}

function Lines({ metrics, sandbox }: { metrics: SandboxMetrics; sandbox: SandboxResponse }) {
  const { history, current } = metrics;
  const [samples, setSamples] = useState<readonly SandboxMetricsSample[]>(
    current == null ? history : [...history, current],
  );
  useEffect(() => {
    const controller = new AbortController();
    const path = { sandbox_id: sandbox.id };
    void followStream(addressOf('/v1/sandboxes/{sandbox_id}/metrics/stream', path, {}), {
      signal: controller.signal,
      onMessage: ({ event, data }) => {
        if (event === 'end') controller.abort();
        else if (event === 'sample')
          setSamples((before) => [...before, JSON.parse(data) as SandboxMetricsSample].slice(-MOST_SAMPLES));
      },
    });
    return () => controller.abort();
  }, []);
  const rates = ratesOf(samples);
  const latest = samples.at(-1);
  if (latest === undefined) return <p>The engine gives no figures yet.</p>;
  const of = (limit: number | null) => (limit === null ? '' : ` of ${bytes(limit)}`);
  const size = (amount: number | null, limit: number | null) =>
    amount === null ? 'not measured' : `${bytes(amount)}${of(limit)}`;
  const rate = (amount: number | null | undefined) =>
    amount == null ? 'not measured' : `${bytes(amount)}/s`;
  return (
    <div class="sparklines">
      <Line name="CPU" text={`${latest.cpu_percent.toFixed(1)} %`} rates={rates} of="cpu" />
      <Line
        name="Memory"
        text={size(latest.memory_bytes, metrics.memory_limit_bytes)}
        rates={rates}
        of="memory"
      />
      <Line name="Disk" text={size(latest.disk_bytes, metrics.disk_limit_bytes)} rates={rates} of="disk" />
      <Line name="Received" text={rate(rates.received.at(-1))} rates={rates} of="received" />
      <Line name="Sent" text={rate(rates.sent.at(-1))} rates={rates} of="sent" />
    </div>
  );
}

interface LineProps {
  name: string;
  text: string;
  rates: Rates;
  of: Exclude<keyof Rates, 'times'>;
}

function Line({ name, text, rates, of }: LineProps) {
  const place = useRef<HTMLDivElement>(null);
  const show = useRef<((times: readonly number[], values: readonly (number | null)[]) => void) | undefined>();
  const isMeasured = rates[of].some((value) => value !== null);
  const shown = useRef(rates);
  shown.current = rates;
  useEffect(() => {
    const target = place.current;
    if (target === null) return undefined;
    const controller = new AbortController();
    const draw = async () => {
      const { drawSparkline } = await import('./draw-sparkline');
      if (controller.signal.aborted) return;
      show.current = drawSparkline(target, controller.signal);
      show.current(shown.current.times, shown.current[of]);
    };
    void draw();
    return () => {
      show.current = undefined;
      controller.abort();
    };
  }, [theme.value, isMeasured]);
  useEffect(() => show.current?.(rates.times, rates[of]), [rates]);
  return (
    <div>
      <span>
        {name} <b>{text}</b>
      </span>
      {isMeasured && <div ref={place} class="sparkline" role="img" aria-label={`${name} in the last hour`} />}
    </div>
  );
}
