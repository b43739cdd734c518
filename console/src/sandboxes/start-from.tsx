import { useLocation } from 'wouter-preact';
import { announce } from '../lib/announce';
import { call } from '../lib/api';
import type { CreateSandboxRequest } from '../lib/api-types';
import { faultsOf } from '../lib/field-faults';
import { submitted } from '../lib/submitted';
import { useChange } from '../lib/use-change';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';

interface StartFromProps {
  /** The noun of the source, such as `snapshot`. */
  source: string;
  image: NonNullable<CreateSandboxRequest['image']>;
  /** The labels of the source. A key that is limited to them can see the sandbox too. */
  labels: Record<string, string>;
  close: () => void;
}

/** Starts a sandbox from a prepared disk, and leads to its page. */
export function StartFrom({ source, image, labels, close }: StartFromProps) {
  const [, go] = useLocation();
  const { send, problem, isBusy } = useChange();
  const faults = faultsOf(problem, ['name', 'resources.vcpus', 'resources.memory_mib']);
  const submit = async (event: SubmitEvent) => {
    const text = submitted(event);
    const body = {
      name: text('name'),
      image,
      resources: { vcpus: Number(text('vcpus')), memory_mib: Number(text('memory')) },
      labels,
    };
    const sandbox = await send(() => call('POST /v1/sandboxes', { query: { start: true }, body }));
    if (sandbox === undefined) return;
    announce(`${sandbox.name} starts.`);
    go(`/sandboxes/${sandbox.id}`);
  };
  return (
    <Dialog title={`Start a sandbox from the ${source}`} close={close}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <Field
          label="Name (required)"
          hint="1 to 128 of A-Z a-z 0-9 . - _, beginning with a letter or digit."
          fault={faults.at('name')}
        >
          <input name="name" required autofocus spellcheck={false} />
        </Field>
        <Field label="Virtual CPUs" fault={faults.at('resources.vcpus')}>
          <input name="vcpus" type="number" min={0} required defaultValue="1" />
        </Field>
        <Field label="Memory in MiB" fault={faults.at('resources.memory_mib')}>
          <input name="memory" type="number" min={1} required defaultValue="512" />
        </Field>
        {faults.rest !== undefined && <ErrorPanel problem={faults.rest} />}
        <p class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            Start
          </button>
        </p>
      </form>
    </Dialog>
  );
}
