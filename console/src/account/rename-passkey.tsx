import { announce } from '../lib/announce';
import { renamePasskey, type Passkey } from '../lib/passkeys';
import { submitted } from '../lib/submitted';
import { useChange } from '../lib/use-change';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';

export function RenamePasskey(props: { of: Passkey; close: () => void; renamed: () => void }) {
  const { id, name: previous } = props.of;
  const { send, problem, isBusy } = useChange();
  const submit = async (event: SubmitEvent) => {
    const name = submitted(event)('name');
    const isRenamed = await send(async () => {
      await renamePasskey(id, name);
      return true;
    });
    if (isRenamed !== true) return;
    announce(`The passkey ${previous} is now ${name}.`);
    props.renamed();
  };
  return (
    <Dialog title={`Rename ${previous}`} close={props.close}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <Field
          label="Name (required)"
          hint="It is shown here and in the audit trail. Your device keeps its own."
        >
          <input name="name" required maxLength={100} defaultValue={previous} autocomplete="off" />
        </Field>
        {problem !== undefined && <ErrorPanel problem={problem} />}
        <p class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            Rename
          </button>
        </p>
      </form>
    </Dialog>
  );
}
