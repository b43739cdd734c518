import { useEffect, useState } from 'preact/hooks';
import { API_URL } from '../lib/base';
import { parsePairs } from '../lib/labels';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { Empty } from '../parts/empty';
import { Field } from '../parts/field';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
import { METRICS, type Metric } from './metrics';
import { Month } from './month';
import { Picture } from './picture';
import { readReport } from './read-report';
import './usage.css';
import { dayAfter, presets, type Window } from './window';

const REFRESH_MS = 30_000;

export function Usage() {
  const url = useUrlState();
  const metrics = metricsOf(url.get('label'));
  const metric = metrics.find((name) => name === url.get('metric')) ?? 'vcpu';
  const label = metric === 'storage' ? '' : url.get('label');
  const keys = keysOf(label);
  const fallback = presets()['This month']!;
  const window: Window = {
    since: url.get('since') || fallback.since,
    until: url.get('until') || fallback.until,
  };
  const asked = { ...window, metric, keys };
  const report = useResource(`usage:${JSON.stringify(asked)}`, (signal) => readReport(asked, signal));
  const isGrowing = Date.parse(window.until) > Date.now();
  useEffect(() => {
    if (!isGrowing) return undefined;
    const timer = setInterval(() => !document.hidden && report.reload(), REFRESH_MS);
    return () => clearInterval(timer);
  }, [isGrowing, JSON.stringify(asked)]);

  return (
    <Page title="Usage">
      <Month month={window.since.slice(0, 7)} />
      <section class="part">
        <h2>By UTC day</h2>
        <Controls window={window} metrics={metrics} metric={metric} label={label} />
        <Loaded resource={report}>
          {(data) =>
            metric === 'cost' && data.costs === undefined ? (
              <p>There is no price book, so nothing has a cost.</p>
            ) : data.amounts.length === 0 ? (
              <Empty title="No usage in these days" line={LINE}>
                <p>
                  Sandboxes use compute while they run, and volumes use storage. The same report with a key in
                  the variable KEY:
                </p>
              </Empty>
            ) : (
              <Picture key={`${metric}:${label}`} report={data} metric={metric} window={window} keys={keys} />
            )
          }
        </Loaded>
      </section>
    </Page>
  );
}

const LINE = `curl ${API_URL}/v1/billing/usage/sandbox -H "authorization: Bearer $KEY"`;

/** The keys as people type them: `team, env`. A key with a comma is in quotes. */
const keysOf = (label: string) => parsePairs(label).map(([key]) => key);

/** Costs are those of labels. */
function metricsOf(label: string): Metric[] {
  const all = Object.keys(METRICS) as Metric[];
  return keysOf(label).length > 0 ? all : all.filter((name) => name !== 'cost');
}

interface ControlsProps {
  window: Window;
  metrics: readonly Metric[];
  metric: Metric;
  label: string;
}

function Controls({ window, metrics, metric, label }: ControlsProps) {
  const url = useUrlState();
  // A report that arrives meanwhile renders the form again, and must not undo what is being typed.
  const [typed, setTyped] = useState<string | undefined>(undefined);
  return (
    <form class="filters" onSubmit={(event) => event.preventDefault()}>
      <fieldset class="choices">
        <legend>Use of</legend>
        {metrics.map((name) => (
          <button
            key={name}
            type="button"
            aria-pressed={metric === name}
            onClick={() => url.set({ metric: name === 'vcpu' ? undefined : name, only: undefined })}
          >
            {METRICS[name].title}
          </button>
        ))}
      </fieldset>
      <fieldset class="choices">
        <legend>Days</legend>
        {Object.entries(presets()).map(([title, preset]) => (
          <button
            key={title}
            type="button"
            aria-pressed={preset.since === window.since && preset.until === window.until}
            onClick={() => url.set({ ...preset })}
          >
            {title}
          </button>
        ))}
      </fieldset>
      <Field label="From">
        <input
          type="date"
          value={window.since}
          onChange={({ currentTarget: { value } }) =>
            value !== '' && url.set({ since: value, until: window.until })
          }
        />
      </Field>
      <Field label="To">
        <input
          type="date"
          value={dayAfter(window.until, -1)}
          onChange={({ currentTarget: { value } }) =>
            value !== '' && url.set({ since: window.since, until: dayAfter(value) })
          }
        />
      </Field>
      {metric !== 'storage' && (
        <Field label="By labels, with their cost (default: by sandbox)">
          <input
            type="search"
            placeholder="team, env"
            value={typed ?? label}
            onInput={({ currentTarget }) => setTyped(currentTarget.value)}
            onChange={({ currentTarget: { value } }) => {
              setTyped(undefined);
              url.set({ label: value.trim(), only: undefined });
            }}
          />
        </Field>
      )}
    </form>
  );
}
