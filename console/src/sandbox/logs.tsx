import { useEffect, useRef, useState } from 'preact/hooks';
import { addressOf } from '../lib/api';
import type { Problem } from '../lib/api';
import type { SandboxResponse } from '../lib/api-types';
import { followStream } from '../lib/event-stream';
import { save } from '../lib/save';
import { Empty } from '../parts/empty';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';

interface LogLine {
  number: number;
  source: string;
  ts: string;
  text: string;
}

const MOST_LINES = 5000;
const DRAW_MS = 60;
const STATES = {
  connecting: 'connecting…',
  following: '● following',
  lost: 'connection lost, it continues by itself',
  ended: 'the log has ended',
};

export function Logs({ sandbox }: { sandbox: SandboxResponse }) {
  const [lines, setLines] = useState<readonly LogLine[]>([]);
  const [state, setState] = useState<keyof typeof STATES>('connecting');
  const [problem, setProblem] = useState<Problem>();
  const [search, setSearch] = useState('');
  const [isPaused, setPaused] = useState(false);
  const end = useRef<HTMLDivElement>(null);
  const paused = useRef(false);
  paused.current = isPaused;

  useEffect(() => {
    const controller = new AbortController();
    const address = addressOf('/v1/sandboxes/{sandbox_id}/logs', { sandbox_id: sandbox.id }, {});
    let arrived: LogLine[] = [];
    let count = 0;
    // A program may write thousands of lines a second, and each drawing takes time.
    const timer = setInterval(() => {
      if (arrived.length === 0 || paused.current) return;
      const added = arrived;
      arrived = [];
      setLines((before) => [...before, ...added].slice(-MOST_LINES));
    }, DRAW_MS);
    void followStream(address, {
      signal: controller.signal,
      onOpen: () => setState('following'),
      onLost: () => setState('lost'),
      onMessage: ({ event, data }) => {
        if (event === 'end') {
          setState('ended');
          controller.abort();
          return;
        }
        const { source, ts, text } = JSON.parse(data) as Omit<LogLine, 'number'>;
        arrived.push({ number: ++count, source, ts, text });
        if (arrived.length > MOST_LINES) arrived.shift();
      },
    }).then(setProblem);
    return () => {
      clearInterval(timer);
      controller.abort();
    };
  }, []);

  useEffect(() => {
    if (!isPaused) end.current?.scrollIntoView({ block: 'nearest' });
  }, [lines, isPaused]);

  if (problem !== undefined) return <ErrorPanel problem={problem} />;
  const wanted = search.toLowerCase();
  const found = wanted === '' ? lines : lines.filter(({ text }) => text.toLowerCase().includes(wanted));
  return (
    <>
      <div class="filters">
        <Field label="Search">
          <input
            type="search"
            value={search}
            onInput={({ currentTarget }) => setSearch(currentTarget.value)}
          />
        </Field>
        <button type="button" aria-pressed={isPaused} onClick={() => setPaused(!isPaused)}>
          Pause
        </button>
        <button
          type="button"
          disabled={lines.length === 0}
          onClick={() =>
            save(
              new Blob(found.map(({ ts, source, text }) => `${ts} ${source} ${text.replace(/\n?$/, '\n')}`)),
              `${sandbox.name}.log`,
            )
          }
        >
          Download what is shown
        </button>
        <small role="status">
          {isPaused ? 'paused' : STATES[state]}
          {wanted !== '' && `, ${found.length} of ${lines.length} lines`}
          {lines.length === MOST_LINES && `, the last ${MOST_LINES} lines`}
        </small>
      </div>
      {lines.length === 0 ? (
        state !== 'connecting' && (
          <Empty title="No output yet">
            <p>The log has the output of the command in the specification (runtime.cmd).</p>
          </Empty>
        )
      ) : (
        <div class="log" role="log" aria-label="Log" tabIndex={0}>
          {found.map(({ number, source, ts, text }) => (
            <div
              key={number}
              class={source === 'stderr' ? 'log-line stderr' : 'log-line'}
              title={`${ts} ${source}`}
            >
              {text}
            </div>
          ))}
          <div ref={end} />
        </div>
      )}
    </>
  );
}
