import { useState } from 'preact/hooks';
import { call } from '../lib/api';
import type { ForkRequest, SandboxResponse, WrittenForkOperation } from '../lib/api-types';
import { faultsOf } from '../lib/field-faults';
import { parseLabels } from '../lib/labels';
import { submitted } from '../lib/submitted';
import { useChange } from '../lib/use-change';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';

const MOST_COPIES = 100;

interface ForkProps {
  of: SandboxResponse;
  close: () => void;
  requested: (operation: WrittenForkOperation) => void;
}

/** Requests copies of a sandbox from one capture of its disk. */
export function Fork({ of, close, requested }: ForkProps) {
  const { send, problem, isBusy } = useChange();
  const [count, setCount] = useState('1');
  const [names, setNames] = useState('');
  const given = namesIn(names);
  const faults = faultsOf(problem, ['count', 'names', 'name_prefix', 'labels', 'volumes']);
  const submit = async (event: SubmitEvent) => {
    const text = submitted(event);
    const body: ForkRequest = {
      count: given.length > 0 ? given.length : Number(count),
      labels: parseLabels(text('labels')),
      start: text('start') !== '',
    };
    if (given.length > 0) body.names = given;
    else if (text('name_prefix') !== '') body.name_prefix = text('name_prefix');
    const volumes = text('volumes');
    if (volumes === 'share' || volumes === 'copy') body.volumes = volumes;
    if (text('secrets') !== '') body.secrets = 'inherit';
    if (text('ports') !== '') body.ports = 'inherit';
    const path = { sandbox_id: of.id };
    const operation = await send(() => call('POST /v1/sandboxes/{sandbox_id}/fork', { path, body }));
    if (operation !== undefined) requested(operation);
  };
  return (
    <Dialog title={`Fork ${of.name}`} close={close}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <p>
          The disk is captured once, and all copies start from it. A running sandbox is paused until its disk
          is copied. Memory and processes are not copied.
        </p>
        <div class="form-grid">
          <Field label="Copies (required)" fault={faults.at('count')}>
            <input
              type="number"
              min={1}
              max={MOST_COPIES}
              required
              autofocus
              disabled={given.length > 0}
              value={given.length > 0 ? String(given.length) : count}
              onInput={({ currentTarget }) => setCount(currentTarget.value)}
            />
          </Field>
          <Field
            label="Beginning of their names"
            hint="A hyphen and a free number follow."
            fault={faults.at('name_prefix')}
          >
            <input name="name_prefix" spellcheck={false} placeholder={of.name} disabled={given.length > 0} />
          </Field>
        </div>
        <Field label="Or the name of each" hint="One a line." fault={faults.at('names')}>
          <textarea
            rows={3}
            spellcheck={false}
            value={names}
            onInput={({ currentTarget }) => setNames(currentTarget.value)}
          />
        </Field>
        <Field label="Labels beside those of the sandbox" fault={faults.at('labels')}>
          <input name="labels" placeholder="task=build" spellcheck={false} />
        </Field>
        {mountsVolumes(of) && (
          <Field label="Volumes" fault={faults.at('volumes')}>
            <select name="volumes">
              <option value="share">The copies mount the same volumes</option>
              <option value="copy">Each copy gets named volumes of its own, with the same files</option>
            </select>
          </Field>
        )}
        <fieldset class="checks">
          <legend>The copies</legend>
          <Check name="start" text="start when the disk is captured" checked />
          {hasSecrets(of) && <Check name="secrets" text="get the secrets of the sandbox" />}
          {(of.spec?.network.ports.length ?? 0) > 0 && (
            <Check name="ports" text="publish the same ports, on free ports of the host" />
          )}
        </fieldset>
        {faults.rest !== undefined && <ErrorPanel problem={faults.rest} />}
        <p class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            Fork
          </button>
        </p>
      </form>
    </Dialog>
  );
}

function Check({ name, text, checked = false }: { name: string; text: string; checked?: boolean }) {
  return (
    <label>
      <input type="checkbox" name={name} defaultChecked={checked} />
      {text}
    </label>
  );
}

function namesIn(text: string): string[] {
  return text
    .split('\n')
    .map((name) => name.trim())
    .filter((name) => name !== '');
}

/** Mounts in memory are those of each sandbox. */
function mountsVolumes({ spec }: SandboxResponse): boolean {
  return spec?.mounts.some(({ type }) => type !== 'Tmpfs') ?? false;
}

function hasSecrets({ spec }: SandboxResponse): boolean {
  if (spec == null) return false;
  return spec.env.some(({ secret }) => secret === true) || (spec.network.secrets ?? []).length > 0;
}
