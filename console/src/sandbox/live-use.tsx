import { useEffect, useRef, useState } from 'preact/hooks';
import { addressOf, call } from '../lib/api';
import type { SandboxMetrics, SandboxMetricsSample, SandboxResponse } from '../lib/api-types';
import { bytes } from '../lib/bytes';
import { followStream } from '../lib/event-stream';
import { theme, timeZone } from '../lib/preferences';
import { useResource } from '../lib/use-resource';
import { Loaded } from '../parts/loaded';
import './sandbox.css';
import { ratesOf, type Rates } from './use-rates';

/** An hour of points and some minutes of samples. */
const MOST_SAMPLES = 600;
const percent = (amount: number) => `${Number.isInteger(amount) ? amount : amount.toFixed(1)} %`;
const rate = (amount: number) => `${bytes(amount)}/s`;

/** The use of a running sandbox: figures, and a picture of the last hour each. */
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
            <Pictures key={sandbox.started_at} metrics={data} sandbox={sandbox} />
          )
        }
      </Loaded>
    </section>
  );
}

function Pictures({ metrics, sandbox }: { metrics: SandboxMetrics; sandbox: SandboxResponse }) {
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
  const now = (line: 'received' | 'sent') => {
    const amount = rates[line].at(-1);
    return amount == null ? 'not measured' : rate(amount);
  };
  const memory: [string, string][] = [['', size(latest.memory_bytes, metrics.memory_limit_bytes)]];
  if (latest.host_memory_bytes != null)
    memory.push(['', `${bytes(latest.host_memory_bytes)} on the machine`]);
  return (
    <div class="uses">
      <Picture
        name="CPU"
        figures={[['', percent(latest.cpu_percent)]]}
        rates={rates}
        of={['cpu']}
        words={percent}
      />
      <Picture name="Memory" figures={memory} rates={rates} of={['memory']} words={bytes} />
      <Picture
        name="Disk"
        figures={[['', size(latest.disk_bytes, metrics.disk_limit_bytes)]]}
        rates={rates}
        of={['disk']}
        words={bytes}
      />
      <Picture
        name="Network"
        figures={[
          ['Received', now('received')],
          ['Sent', now('sent')],
        ]}
        rates={rates}
        of={['received', 'sent']}
        words={rate}
      />
    </div>
  );
}

type Line = Exclude<keyof Rates, 'times'>;

interface PictureProps {
  name: string;
  /** The latest amounts. With more than one, each has the name of its line. */
  figures: readonly (readonly [line: string, amount: string])[];
  rates: Rates;
  of: readonly Line[];
  words: (amount: number) => string;
}

function Picture({ name, figures, rates, of, words }: PictureProps) {
  const place = useRef<HTMLDivElement>(null);
  const show = useRef<(() => void) | undefined>();
  const shown = useRef(rates);
  shown.current = rates;
  const isMeasured = of.some((line) => rates[line].some((value) => value !== null));
  useEffect(() => {
    const target = place.current;
    if (target === null) return undefined;
    const controller = new AbortController();
    const draw = async () => {
      const { drawUse } = await import('./draw-use');
      if (controller.signal.aborted) return;
      const options = { lines: of, words, isBytes: words !== percent, isUtc: timeZone.value === 'utc' };
      const update = drawUse(target, options, controller.signal);
      show.current = () =>
        update(
          shown.current.times,
          of.map((line) => shown.current[line]),
        );
      show.current();
    };
    void draw();
    return () => {
      show.current = undefined;
      controller.abort();
    };
  }, [theme.value, timeZone.value, isMeasured]);
  useEffect(() => show.current?.(), [rates]);
  return (
    <div class="use">
      <p class="use-head">
        <span>{name}</span>
        {figures.map(([line, amount], index) => (
          <span key={`${line}${index}`}>
            {line !== '' && <span class={`use-line line-${index}`}>{line}</span>} <b>{amount}</b>
          </span>
        ))}
      </p>
      {isMeasured && (
        <div ref={place} class="use-picture" role="img" aria-label={`${name} in the last hour`} />
      )}
    </div>
  );
}
