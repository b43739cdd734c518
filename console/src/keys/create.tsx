import { useState } from 'preact/hooks';
import { call } from '../lib/api';
import type { KeyScope } from '../lib/api-types';
import { parseLabels } from '../lib/labels';
import { submitted } from '../lib/submitted';
import { useChange } from '../lib/use-change';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';
import type { Issued } from './new-secret';
import { PRESETS, SCOPES } from './scopes';

const ALL = Object.keys(SCOPES) as KeyScope[];

export function Create({ close, created }: { close: () => void; created: (issued: Issued) => void }) {
  const [scopes, setScopes] = useState<ReadonlySet<KeyScope>>(new Set(PRESETS['Run sandboxes']));
  const { send, problem, isBusy } = useChange();
  const toggle = (scope: KeyScope) => {
    const next = new Set(scopes);
    if (!next.delete(scope)) next.add(scope);
    setScopes(next);
  };
  const submit = async (event: SubmitEvent) => {
    const text = submitted(event);
    const expires = text('expires_at');
    const key = await send(() =>
      call('POST /v1/keys', {
        body: {
          name: text('name'),
          scopes: ALL.filter((scope) => scopes.has(scope)),
          labels: parseLabels(text('labels')),
          cidrs: text('cidrs')
            .split(/[\s,]+/)
            .filter((cidr) => cidr !== ''),
          expires_at: expires === '' ? null : new Date(expires).toISOString(),
        },
      }),
    );
    if (key !== undefined) created({ key, isNew: true });
  };
  return (
    <Dialog title="Create a key" close={close} wide>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <div class="form-grid">
          <Field label="Name (required)" hint="Its purpose. The audit trail shows it.">
            <input name="name" required autofocus />
          </Field>
          <Field label="Expires" hint="Without a time it does not expire.">
            <input name="expires_at" type="datetime-local" />
          </Field>
          <Field label="Labels" hint="Only sandboxes that have all of them. Then only scopes of sandboxes.">
            <input name="labels" placeholder="team=ml, env=prod" spellcheck={false} />
          </Field>
          <Field label="Networks" hint="It is accepted only from these. None: from everywhere.">
            <input name="cidrs" placeholder="10.0.0.0/8, 2001:db8::/32" spellcheck={false} />
          </Field>
        </div>
        <fieldset class="scopes">
          <legend>Scopes</legend>
          <div class="choices" role="group" aria-label="Presets of scopes">
            {Object.entries(PRESETS).map(([title, preset]) => (
              <button
                key={title}
                type="button"
                aria-pressed={preset.length === scopes.size && preset.every((scope) => scopes.has(scope))}
                onClick={() => setScopes(new Set(preset))}
              >
                {title}
              </button>
            ))}
          </div>
          {ALL.map((scope) => (
            <label key={scope}>
              <input type="checkbox" checked={scopes.has(scope)} onChange={() => toggle(scope)} />
              <span>
                <code>{scope}</code>
                <small>{SCOPES[scope]}</small>
              </span>
            </label>
          ))}
        </fieldset>
        {problem !== undefined && <ErrorPanel problem={problem} />}
        <p class="actions">
          <button type="submit" class="primary" disabled={isBusy || scopes.size === 0}>
            Create
          </button>
        </p>
      </form>
    </Dialog>
  );
}
