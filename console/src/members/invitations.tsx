import { attempt } from '../lib/attempt';
import { call } from '../lib/api';
import type { InvitationResponse } from '../lib/api-types';
import { actorOf } from '../lib/actor';
import { isOwner } from '../lib/session';
import type { Resource } from '../lib/use-resource';
import { confirm } from '../parts/confirm';
import { Loaded } from '../parts/loaded';
import { Table, type Column } from '../parts/table';
import { Tags } from '../parts/tags';
import { Time } from '../parts/time';

interface Invitations {
  data: readonly InvitationResponse[];
}

/** The open invitations. Nothing without one. */
export function OpenInvitations({ list }: { list: Resource<Invitations> }) {
  const revoke = async ({ id, email }: InvitationResponse) => {
    const isConfirmed = await confirm({
      title: 'Revoke this invitation?',
      names: [email],
      consequence: 'Its link ends at once.',
      action: 'Revoke',
    });
    if (!isConfirmed) return;
    const path = { invitation_id: id };
    await attempt(
      () => call('DELETE /v1/invitations/{invitation_id}', { path }),
      `Revoked the invitation of ${email}.`,
    );
    list.reload();
  };
  const columns: readonly Column<InvitationResponse>[] = [
    { title: 'Email', cell: ({ email }) => email, isWide: true },
    { title: 'Role', cell: ({ role }) => <span class="badge">{role}</span> },
    { title: 'Labels', cell: ({ labels }) => <Tags of={labels} folded />, isMinor: true },
    { title: 'Invited by', cell: (invitation) => actorOf({ actor: invitation.created_by }), isMinor: true },
    { title: 'Ends', cell: ({ expires_at }) => <Time at={expires_at} /> },
    {
      title: 'Actions',
      cell: (invitation) =>
        // The service refuses to revoke the others.
        (invitation.role !== 'owner' || isOwner()) && (
          <button
            type="button"
            class="danger"
            aria-label={`Revoke the invitation of ${invitation.email}`}
            onClick={() => void revoke(invitation)}
          >
            Revoke
          </button>
        ),
    },
  ];
  return (
    <Loaded resource={list}>
      {({ data }) =>
        data.length === 0 ? null : (
          <section class="part">
            <h2>Open invitations</h2>
            <Table
              caption="Open invitations"
              columns={columns}
              rows={data}
              id={({ id }) => id}
              name={({ email }) => email}
            />
          </section>
        )
      }
    </Loaded>
  );
}
