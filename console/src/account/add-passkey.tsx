import { announce } from '../lib/announce';
import { addPasskey } from '../lib/passkeys';
import { submitted } from '../lib/submitted';
import { useChange } from '../lib/use-change';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';

export function AddPasskey(props: { isFirst: boolean; added: () => void }) {
  const { send, problem, isBusy } = useChange();
  const submit = async (event: SubmitEvent) => {
    const name = submitted(event)('name');
    const isAdded = await send(async () => {
      await addPasskey(name);
      return true;
    });
    if (isAdded !== true) return;
    announce(`Added the passkey ${name}.`);
    props.added();
  };
  return (
    <form class="form add-passkey" onSubmit={(event) => void submit(event)}>
      <p>
        {props.isFirst
          ? 'Add a passkey, so that you can sign in again: a link opens one session only.'
          : 'Add a passkey on another device, so that the loss of one does not lock you out.'}
      </p>
      <Field
        label="Name (required)"
        hint="The device verifies you by fingerprint, face or PIN. Nothing of that leaves it."
      >
        <input name="name" required maxLength={100} defaultValue="This device" autocomplete="off" />
      </Field>
      {problem !== undefined && <ErrorPanel problem={problem} />}
      <p class="actions">
        <button type="submit" class="primary" disabled={isBusy}>
          Add a passkey
        </button>
      </p>
    </form>
  );
}
