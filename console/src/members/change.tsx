import { announce } from '../lib/announce';
import { call } from '../lib/api';
import type { OrgMemberResponse, OrgRole } from '../lib/api-types';
import { parseLabels } from '../lib/labels';
import { submitted } from '../lib/submitted';
import { useChange } from '../lib/use-change';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { RoleFields } from './role-fields';

/** Another role for a member, or other labels. */
export function Change(props: { of: OrgMemberResponse; close: () => void; changed: () => void }) {
  const { id, email, role, labels } = props.of;
  const { send, problem, isBusy } = useChange();
  const submit = async (event: SubmitEvent) => {
    const text = submitted(event);
    const wanted = { role: text('role') as OrgRole, labels: parseLabels(text('labels')) };
    const done = await send(() =>
      call('PATCH /v1/members/{member_id}', { path: { member_id: id }, body: wanted }),
    );
    if (done === undefined) return;
    announce(`${email} has the role ${done.role}.`);
    props.changed();
  };
  return (
    <Dialog title={`Change ${email}`} close={props.close}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <RoleFields role={role} labels={labels} />
        <p>Open sessions of the member have the new rights at once.</p>
        {problem !== undefined && <ErrorPanel problem={problem} />}
        <p class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            Change
          </button>
        </p>
      </form>
    </Dialog>
  );
}
