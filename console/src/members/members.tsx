import { useState } from 'preact/hooks';
import { attempt } from '../lib/attempt';
import { call } from '../lib/api';
import type { InvitationWithLink, OrgMemberResponse, PaginatedMemberResponse } from '../lib/api-types';
import { useLive } from '../lib/live';
import { isOwner, session } from '../lib/session';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { confirm } from '../parts/confirm';
import { CodeLines } from '../parts/copy';
import { Dialog } from '../parts/dialog';
import { Empty } from '../parts/empty';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
import { Pager } from '../parts/pager';
import { Table, type Column } from '../parts/table';
import { Tags } from '../parts/tags';
import { Time } from '../parts/time';
import { Change } from './change';
import { OpenInvitations } from './invitations';
import { Invite } from './invite';

/** The people of the organization, and those invited. */
export function Members() {
  const url = useUrlState();
  const [changed, setChanged] = useState<OrgMemberResponse>();
  const [isInviting, setInviting] = useState(false);
  const [invitation, setInvitation] = useState<InvitationWithLink>();
  const query = { cursor: url.get('cursor') || undefined, limit: 50 };
  const list = useResource(`members:${JSON.stringify(query)}`, (signal) =>
    call('GET /v1/members', { query, signal }),
  );
  const invitations = useResource('invitations', (signal) =>
    call('GET /v1/invitations', { query: { limit: 100 }, signal }),
  );
  useLive('member', () => {
    list.reload();
    invitations.reload();
  });

  const remove = async ({ id, email }: OrgMemberResponse) => {
    const isOwn = id === session.value?.member?.id;
    const isConfirmed = await confirm({
      title: 'Remove this member?',
      names: [email],
      consequence: isOwn
        ? 'This is you: your session ends at once.'
        : 'The sessions of the member end at once. Keys that the member created stay.',
      action: 'Remove',
    });
    if (!isConfirmed) return;
    const path = { member_id: id };
    await attempt(() => call('DELETE /v1/members/{member_id}', { path }), `Removed ${email}.`);
    list.reload();
  };

  const lastOwner = query.cursor === undefined ? lastOwnerOf(list.data) : undefined;
  // The service refuses a change of the other owners.
  const isChangeable = ({ id, role }: OrgMemberResponse) =>
    role !== 'owner' || (isOwner() && id !== lastOwner);
  const columns: readonly Column<OrgMemberResponse>[] = [
    { title: 'Email', cell: ({ email }) => email, isWide: true },
    { title: 'Name', cell: ({ display_name }) => display_name ?? '–', isMinor: true },
    { title: 'Role', cell: ({ role }) => <span class="badge">{role}</span> },
    { title: 'Labels', cell: ({ labels }) => <Tags of={labels} folded />, isMinor: true },
    { title: 'Member since', cell: ({ joined_at }) => <Time at={joined_at} />, isMinor: true },
    {
      title: 'Actions',
      cell: (member) =>
        isChangeable(member) && (
          <span class="actions">
            <button type="button" aria-label={`Change ${member.email}`} onClick={() => setChanged(member)}>
              Change
            </button>
            <button
              type="button"
              class="danger"
              aria-label={`Remove ${member.email}`}
              onClick={() => void remove(member)}
            >
              Remove
            </button>
          </span>
        ),
    },
  ];

  return (
    <Page
      title="Members"
      actions={
        <button type="button" class="primary" onClick={() => setInviting(true)}>
          Invite
        </button>
      }
    >
      <Loaded resource={list}>
        {({ data, has_more, next_cursor }) =>
          data.length === 0 ? (
            <Empty
              title="No member"
              text="Invite a person here. The operator invites the first owner on the machine of the service:"
              line="sandkeep member invite --help"
            />
          ) : (
            <>
              <Table
                caption="Members"
                columns={columns}
                rows={data}
                id={({ id }) => id}
                name={({ email }) => email}
              />
              <Pager next={next_cursor} hasMore={has_more} />
            </>
          )
        }
      </Loaded>
      <OpenInvitations list={invitations} />
      {changed !== undefined && (
        <Change
          of={changed}
          close={() => setChanged(undefined)}
          changed={() => {
            setChanged(undefined);
            list.reload();
          }}
        />
      )}
      {isInviting && (
        <Invite
          close={() => setInviting(false)}
          invited={(made) => {
            setInviting(false);
            setInvitation(made);
            invitations.reload();
          }}
        />
      )}
      {invitation !== undefined && (
        <Dialog title={`The invitation of ${invitation.email}`} close={() => setInvitation(undefined)} wide>
          <p>Send the link privately. It is shown only once, and works once.</p>
          <CodeLines text={invitation.link} of="link" />
          <p class="actions">
            <button type="button" onClick={() => setInvitation(undefined)}>
              I have sent it
            </button>
          </p>
        </Dialog>
      )}
    </Page>
  );
}

/** The id of the only owner, where the first page has all members. */
function lastOwnerOf(list: PaginatedMemberResponse | undefined): string | undefined {
  if (list === undefined || list.has_more) return undefined;
  const owners = list.data.filter(({ role }) => role === 'owner');
  return owners.length === 1 ? owners[0]!.id : undefined;
}
