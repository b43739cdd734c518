import { call } from '../lib/api';
import type { PoolResponse } from '../lib/api-types';
import { submitted } from '../lib/submitted';
import { useChange } from '../lib/use-change';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';

/** `of`: the pool to change. Undefined: a new one. */
export function PutPool(props: {
  of?: PoolResponse;
  close: () => void;
  saved: (pool: PoolResponse) => void;
}) {
  const { of } = props;
  const { send, problem, isBusy } = useChange();
  const submit = async (event: SubmitEvent) => {
    const text = submitted(event);
    const body = {
      image: { type: 'oci' as const, reference: text('image') },
      resources: {
        ...of?.resources,
        vcpus: Number(text('vcpus')),
        memory_mib: Number(text('memory')),
      },
      ...(of && { pull_policy: of.pull_policy, network: networkOf(of) }),
      size: Number(text('size')),
      most: text('most') === '' ? null : Number(text('most')),
    };
    const name = of?.name ?? text('name');
    const pool = await send(() => call('PUT /v1/pools/{name}', { path: { name }, body }));
    if (pool !== undefined) props.saved(pool);
  };
  return (
    <Dialog title={of ? 'Change the pool' : 'Create a pool'} close={props.close}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        {of === undefined && (
          <Field
            label="Name (required)"
            hint="1 to 128 of A-Z a-z 0-9 . - _, beginning with a letter or digit."
          >
            <input name="name" required autofocus spellcheck={false} />
          </Field>
        )}
        <Field label="Image (required)" hint="Creates name it with the same text.">
          <input
            name="image"
            required
            spellcheck={false}
            defaultValue={of?.image}
            placeholder="python:3.12"
          />
        </Field>
        <Field label="Ready sandboxes" hint="Each is billed from its start.">
          <input name="size" type="number" min={0} max={100} required defaultValue={String(of?.size ?? 2)} />
        </Field>
        <Field
          label="Most that run"
          hint="Those that the pool gave away included. Without a number there is no limit."
        >
          <input name="most" type="number" min={0} defaultValue={of?.most == null ? '' : String(of.most)} />
        </Field>
        <Field label="Virtual CPUs">
          <input
            name="vcpus"
            type="number"
            min={0}
            required
            defaultValue={String(of?.resources.vcpus ?? 1)}
          />
        </Field>
        <Field label="Memory in MiB">
          <input
            name="memory"
            type="number"
            min={1}
            required
            defaultValue={String(of?.resources.memory_mib ?? 512)}
          />
        </Field>
        {problem !== undefined && <ErrorPanel problem={problem} />}
        <p class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            {of ? 'Save' : 'Create'}
          </button>
        </p>
      </form>
    </Dialog>
  );
}

/** The network of an answer as a request: a pool has neither ports nor secrets. */
function networkOf({ network }: PoolResponse) {
  const { ports, secrets, ...rest } = network;
  return ports.length === 0 && !secrets?.length ? rest : { enabled: network.enabled };
}
