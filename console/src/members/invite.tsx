import { call } from '../lib/api';
import type { InvitationWithLink, OrgRole } from '../lib/api-types';
import { parseLabels } from '../lib/labels';
import { submitted } from '../lib/submitted';
import { useChange } from '../lib/use-change';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';
import { RoleFields } from './role-fields';

export function Invite(props: { close: () => void; invited: (invitation: InvitationWithLink) => void }) {
  const { send, problem, isBusy } = useChange();
  const submit = async (event: SubmitEvent) => {
    const text = submitted(event);
    const asked = {
      email: text('email'),
      role: text('role') as OrgRole,
      labels: parseLabels(text('labels')),
    };
    const invitation = await send(() => call('POST /v1/invitations', { body: asked }));
    if (invitation !== undefined) props.invited(invitation);
  };
  return (
    <Dialog title="Invite a person" close={props.close}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <Field label="Email (required)" hint="A further invitation of the address replaces the first.">
          <input name="email" type="email" required autofocus autocomplete="off" />
        </Field>
        <RoleFields role="developer" labels={{}} />
        {problem !== undefined && <ErrorPanel problem={problem} />}
        <p class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            Invite
          </button>
        </p>
      </form>
    </Dialog>
  );
}
