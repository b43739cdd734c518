import { useState } from 'preact/hooks';
import { attempt } from '../lib/attempt';
import { ownPasskeys, removePasskey, type Passkey } from '../lib/passkeys';
import { resumeSession } from '../lib/sign-in';
import { session } from '../lib/session';
import { Identity } from '../layout/identity';
import { useResource } from '../lib/use-resource';
import { confirm } from '../parts/confirm';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
import { Table, type Column } from '../parts/table';
import { Time } from '../parts/time';
import './account.css';
import { AddPasskey } from './add-passkey';
import { RenamePasskey } from './rename-passkey';

/** The person of the session, and its passkeys. */
export function Account() {
  const list = useResource('passkeys', ownPasskeys);
  const [renamed, setRenamed] = useState<Passkey>();
  const remove = async ({ id, name, is_current }: Passkey) => {
    const isConfirmed = await confirm({
      title: 'Remove this passkey?',
      names: [name],
      consequence: is_current
        ? 'You are signed in with it: this session ends at once.'
        : 'The sessions that it opened end at once. Delete it from your device too.',
      action: 'Remove',
    });
    if (!isConfirmed) return;
    const isRemoved = await attempt(() => removePasskey(id), `Removed ${name}.`);
    if (isRemoved && is_current) await attempt(resumeSession, () => undefined);
    else list.reload();
  };
  const columns: readonly Column<Passkey>[] = [
    {
      title: 'Name',
      cell: ({ name, is_current }) => (
        <>
          {name} {is_current && <span class="badge">this session</span>}
        </>
      ),
      isWide: true,
    },
    { title: 'Added', cell: ({ created_at }) => <Time at={created_at} />, isMinor: true },
    {
      title: 'Last sign-in',
      cell: ({ used_at }) => (used_at === null ? 'never' : <Time at={used_at} relative />),
    },
    {
      title: 'Actions',
      cell: (passkey) => (
        <span class="actions">
          <button
            type="button"
            aria-label={`Rename the passkey ${passkey.name}`}
            onClick={() => setRenamed(passkey)}
          >
            Rename
          </button>
          <button
            type="button"
            class="danger"
            aria-label={`Remove the passkey ${passkey.name}`}
            onClick={() => void remove(passkey)}
          >
            Remove
          </button>
        </span>
      ),
    },
  ];
  return (
    <Page title="Account">
      <p>
        <Identity /> of <b>{session.value?.organization.name}</b>.
      </p>
      <section class="part">
        <h2>Passkeys</h2>
        <Loaded resource={list}>
          {({ passkeys, unavailable }) => (
            <>
              {passkeys.length > 0 && (
                <Table
                  caption="Passkeys"
                  columns={columns}
                  rows={passkeys}
                  id={({ id }) => id}
                  name={({ name }) => name}
                />
              )}
              {unavailable === null ? (
                <AddPasskey key={passkeys.length} isFirst={passkeys.length === 0} added={list.reload} />
              ) : (
                <p>{unavailable}</p>
              )}
            </>
          )}
        </Loaded>
        {renamed !== undefined && (
          <RenamePasskey
            of={renamed}
            close={() => setRenamed(undefined)}
            renamed={() => {
              setRenamed(undefined);
              list.reload();
            }}
          />
        )}
      </section>
    </Page>
  );
}
