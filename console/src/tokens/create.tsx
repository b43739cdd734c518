import { call } from '../lib/api';
import type { PersonalTokenWithSecret } from '../lib/api-types';
import { submitted } from '../lib/submitted';
import { useChange } from '../lib/use-change';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';

const DEFAULT_DAYS = 30;
const LONGEST_DAYS = 366;

export function CreateToken(props: { close: () => void; created: (token: PersonalTokenWithSecret) => void }) {
  const { send, problem, isBusy } = useChange();
  const submit = async (event: SubmitEvent) => {
    const text = submitted(event);
    const asked = { name: text('name'), expires_in_days: Number(text('days')) };
    const token = await send(() => call('POST /v1/tokens', { body: asked }));
    if (token !== undefined) props.created(token);
  };
  return (
    <Dialog title="Create a personal token" close={props.close}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <Field label="Name (required)" hint="Its purpose. The audit trail shows it.">
          <input name="name" required autofocus />
        </Field>
        <Field label="Days" hint="It is refused afterwards.">
          <input name="days" type="number" min={1} max={LONGEST_DAYS} value={DEFAULT_DAYS} required />
        </Field>
        {problem !== undefined && <ErrorPanel problem={problem} />}
        <p class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            Create
          </button>
        </p>
      </form>
    </Dialog>
  );
}
