import { useState } from 'preact/hooks';
import { addressOf, request } from '../lib/api';
import type { TemplateResponse } from '../lib/api-types';
import { faultsOf } from '../lib/field-faults';
import { parseLabels } from '../lib/labels';
import { submitted } from '../lib/submitted';
import { useUrlState } from '../lib/url-state';
import { useChange } from '../lib/use-change';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';
import { ContentFields, contentIn, FORMS, type Form } from './content-fields';

const FIELDS = ['tag', 'labels', 'dockerfile', 'body', 'build_args', 'target', 'resources', 'timeout_secs'];

interface CreateTemplateProps {
  close: () => void;
  created: (template: TemplateResponse) => void;
}

/** Requests a build from commands, a Dockerfile, or a file. */
export function CreateTemplate({ close, created }: CreateTemplateProps) {
  const url = useUrlState();
  const [file, setFile] = useState<File>();
  const [sent, setSent] = useState<Form>();
  const { send, problem, isBusy } = useChange();
  const faults = faultsOf(problem, FIELDS);
  const form: Form = url.get('create') in FORMS ? (url.get('create') as Form) : 'commands';
  const submit = async (event: SubmitEvent) => {
    const text = submitted(event);
    setSent(form);
    const address = addressOf('/v1/templates', {}, queryIn(text));
    const template = await send(async () => {
      const answer = await request(address, { method: 'POST', body: contentIn(form, text, file) });
      return (await answer.json()) as TemplateResponse;
    });
    if (template !== undefined) created(template);
  };
  return (
    <Dialog title="Create a template" close={close} wide>
      <div class="choices" role="group" aria-label="Made from">
        {Object.entries(FORMS).map(([name, title]) => (
          <button
            key={name}
            type="button"
            aria-pressed={form === name}
            onClick={() => url.set({ create: name }, { replace: true })}
          >
            {title}
          </button>
        ))}
      </div>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <Field
          label="Name and tag (required)"
          hint="Such as agent:1. A build that succeeds takes the tag from the template that has it."
          fault={faults.at('tag')}
        >
          <input name="tag" required autofocus spellcheck={false} autocomplete="off" placeholder="agent:1" />
        </Field>
        <ContentFields
          form={form}
          file={file}
          choose={setFile}
          fault={sent === form ? (faults.at('dockerfile') ?? faults.at('body')) : undefined}
        />
        <Field label="Labels" hint="The sandboxes of the build have them too." fault={faults.at('labels')}>
          <input name="labels" placeholder="team=ml, env=prod" spellcheck={false} />
        </Field>
        <details>
          <summary>Resources, values and the cache</summary>
          <div class="form-grid">
            <Field label="Virtual CPUs of the build" fault={faults.at('resources')}>
              <input name="vcpus" type="number" min={1} placeholder="1" />
            </Field>
            <Field label="Memory of the build in MiB">
              <input name="memory" type="number" min={1} placeholder="512" />
            </Field>
            <Field label="Most seconds of the build" fault={faults.at('timeout_secs')}>
              <input name="timeout" type="number" min={1} placeholder="1800" />
            </Field>
            <Field label="Values for ARG" hint="They are not secret." fault={faults.at('build_args')}>
              <input name="build_args" placeholder="VERSION=2" spellcheck={false} />
            </Field>
            {form !== 'commands' && (
              <Field
                label="Stage to build"
                hint="Its name or number. Default: the last one."
                fault={faults.at('target')}
              >
                <input name="target" maxLength={128} spellcheck={false} autocomplete="off" />
              </Field>
            )}
            {form === 'file' && (
              <Field label="Path of the Dockerfile" hint="In the archive.">
                <input name="dockerfile" placeholder="Dockerfile" spellcheck={false} />
              </Field>
            )}
          </div>
          <label>
            <input type="checkbox" name="anew" /> run every step again
          </label>
        </details>
        {faults.rest !== undefined && <ErrorPanel problem={faults.rest} />}
        <p class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            Build
          </button>
          {isBusy && <small role="status">Sending…</small>}
        </p>
      </form>
    </Dialog>
  );
}

/** Parameters without a value are left out, so that they have their defaults. */
function queryIn(text: (name: string) => string): Record<string, string> {
  const resources = {
    ...(text('vcpus') !== '' && { vcpus: Number(text('vcpus')) }),
    ...(text('memory') !== '' && { memory_mib: Number(text('memory')) }),
  };
  const pairs = (name: string) => {
    const given = parseLabels(text(name));
    return Object.keys(given).length === 0 ? '' : JSON.stringify(given);
  };
  const query = {
    tag: text('tag'),
    labels: pairs('labels'),
    build_args: pairs('build_args'),
    dockerfile: text('dockerfile'),
    target: text('target'),
    timeout_secs: text('timeout'),
    cache: text('anew') === '' ? '' : 'false',
    sandbox: Object.keys(resources).length === 0 ? '' : JSON.stringify({ resources }),
  };
  return Object.fromEntries(Object.entries(query).filter(([, value]) => value !== ''));
}
