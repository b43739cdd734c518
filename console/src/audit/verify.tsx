import { useEffect, useRef, useState } from 'preact/hooks';
import { addressOf, Problem, request } from '../lib/api';
import { noteVerified } from '../lib/verified-log';
import { CodeLines } from '../parts/copy';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';
import { number } from './number';
import { Unproved, verifyInWorker, type Progress, type StreamVerdict } from './verification';
import { Verdict } from './verdict';

const SHOWN_EVERY_MS = 200;
const BY_HAND = 'sandkeep events verify --file events.ndjson --public-key "$(cat public-keys)"';

interface State {
  running?: AbortController;
  progress?: Progress & { perSecond: number };
  verdict?: StreamVerdict & { hasKeys: boolean; seconds: number };
  problem?: Problem;
  unproved?: string;
}

/** The whole log, computed again in this browser. */
export function Verify() {
  const heading = useRef<HTMLHeadingElement>(null);
  const [keys, setKeys] = useState('');
  const [state, setState] = useState<State>({});
  const running = useRef<AbortController>();
  running.current = state.running;
  useEffect(() => {
    heading.current?.focus();
    return () => running.current?.abort();
  }, []);

  const verify = async () => {
    const controller = new AbortController();
    const begun = performance.now();
    let shownAt = 0;
    setState({ running: controller });
    try {
      const { signal } = controller;
      const answer = await request(addressOf('/v1/events/export', {}, { format: 'ndjson' }), { signal });
      const verdict = await verifyInWorker(answer.body!, keys, signal, (progress) => {
        const now = performance.now();
        if (now - shownAt < SHOWN_EVERY_MS) return;
        shownAt = now;
        const perSecond = progress.seq / ((now - begun) / 1000);
        setState({ running: controller, progress: { ...progress, perSecond } });
      });
      const seconds = (performance.now() - begun) / 1000;
      if (verdict.wrong === null) noteVerified();
      setState({ verdict: { ...verdict, hasKeys: keys.trim() !== '', seconds } });
    } catch (error) {
      if (error instanceof Problem) setState({ problem: error });
      else if (error instanceof Unproved) setState({ unproved: error.message });
      else if (controller.signal.aborted) setState({ unproved: 'The verification was stopped.' });
      else throw error;
    }
  };
  const choose = async (input: HTMLInputElement) => {
    const [file] = input.files ?? [];
    if (file) setKeys(await file.text());
    input.value = '';
  };

  return (
    <section class="panel verify" aria-labelledby="verification">
      <h2 id="verification" ref={heading} tabIndex={-1}>
        Verification
      </h2>
      <p>
        This browser downloads the whole log and computes the hash of each event and the link to its previous
        entry again. With the public keys of the service it also verifies each signed checkpoint. The download
        is an export, so it writes an event.
      </p>
      {globalThis.crypto.subtle === undefined ? (
        <InsecureContext />
      ) : (
        <form
          class="form"
          onSubmit={(event) => {
            event.preventDefault();
            void verify();
          }}
        >
          <Field
            label="Public keys (optional)"
            hint="The lines that “sandkeep events key” prints on the machine of the service, newest first. Get them another way than from this page."
          >
            <textarea
              rows={2}
              spellcheck={false}
              value={keys}
              onInput={({ currentTarget }) => setKeys(currentTarget.value)}
            />
          </Field>
          <p class="actions">
            <button type="submit" class="primary" disabled={state.running !== undefined}>
              Verify the chain
            </button>
            {state.running !== undefined && (
              <button type="button" onClick={() => state.running?.abort()}>
                Stop
              </button>
            )}
            <label class="button">
              Choose a file of keys
              <input
                class="unseen"
                type="file"
                onChange={({ currentTarget }) => void choose(currentTarget)}
              />
            </label>
          </p>
        </form>
      )}
      {state.running !== undefined && <Running progress={state.progress} />}
      {state.problem !== undefined && <ErrorPanel problem={state.problem} />}
      {state.unproved !== undefined && (
        <p class="fault-message" role="alert">
          {state.unproved}
        </p>
      )}
      {state.verdict !== undefined && <Verdict verdict={state.verdict} />}
      <details>
        <summary>A proof that does not trust this service</summary>
        <p>
          The service also sent the code of this page. An export and the command below need only the keys, on
          any machine.
        </p>
        <CodeLines text={BY_HAND} of="command" />
      </details>
    </section>
  );
}

function Running({ progress }: { progress: State['progress'] }) {
  const { seq = 0, upTo = 0, perSecond = 0 } = progress ?? {};
  return (
    <p class="actions">
      <progress max={Math.max(upTo, 1)} value={seq} aria-label="Verified entries" />
      <small>
        {upTo === 0
          ? 'The service begins the export…'
          : `${number(seq)} of ${number(upTo)} entries, ${number(perSecond)} a second`}
      </small>
    </p>
  );
}

function InsecureContext() {
  return (
    <div class="panel fault" role="alert">
      <p class="fault-message">This page is not in a secure context, so the browser offers no WebCrypto.</p>
      <p>
        Browsers offer it over https, and over http on localhost only. Open the console over https or through
        a tunnel to localhost, or use the command below.
      </p>
    </div>
  );
}
