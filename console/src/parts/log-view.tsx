import { useEffect, useRef, useState } from 'preact/hooks';
import { save } from '../lib/save';
import { MOST_LINES, type Log } from '../lib/use-log';
import { Empty } from './empty';
import { ErrorPanel } from './error-panel';
import { Field } from './field';

const STATES = {
  connecting: 'connecting…',
  following: '● following',
  lost: 'connection lost, it continues by itself',
  ended: 'the log has ended',
};

interface LogViewProps {
  log: Log;
  /** The name of a downloaded file. */
  file: string;
  /** Why there may be no line. */
  empty: string;
}

/** A log that is followed, searched, paused and downloaded. */
export function LogView({ log, file, empty }: LogViewProps) {
  const { lines, state, problem, isPaused, pause } = log;
  const [search, setSearch] = useState('');
  const body = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // The page itself stays where it is.
    if (!isPaused) body.current?.scrollTo({ top: body.current.scrollHeight });
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
        <button type="button" aria-pressed={isPaused} onClick={() => pause(!isPaused)}>
          Pause
        </button>
        <button
          type="button"
          disabled={lines.length === 0}
          onClick={() =>
            save(
              new Blob(found.map(({ ts, source, text }) => `${ts} ${source} ${text.replace(/\n?$/, '\n')}`)),
              file,
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
            <p>{empty}</p>
          </Empty>
        )
      ) : (
        <div ref={body} class="log" role="log" aria-label="Log" tabIndex={0}>
          {found.map(({ number, source, ts, text }) => (
            <div key={number} class={`log-line ${source}`} title={`${ts} ${source}`}>
              {text}
            </div>
          ))}
        </div>
      )}
    </>
  );
}
