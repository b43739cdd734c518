import { announce } from '../lib/announce';
import { Problem } from '../lib/api';
import { BASE_PATH } from '../lib/base';
import { session } from '../lib/session';
import { switchOrganization } from '../lib/sign-in';

/** Nothing for a session of one organization. */
export function OrganizationChoice() {
  const { organization, organizations = [] } = session.value ?? {};
  if (organizations.length < 2) return null;
  const change = async (id: string) => {
    await switchOrganization(id);
    // Nothing of the organization before stays on a page.
    location.assign(`${BASE_PATH}/console/`);
  };
  return (
    <label>
      Organization{' '}
      <select
        value={organization?.id}
        onChange={({ currentTarget }) =>
          void change(currentTarget.value).catch((error: unknown) => {
            if (error instanceof Problem) announce(error.message, true);
          })
        }
      >
        {organizations.map(({ id, name }) => (
          <option key={id} value={id}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

/** The key or the member of the session. */
export function Identity() {
  const { key, member } = session.value ?? {};
  if (key) {
    return (
      <>
        Signed in with the key <b>{key.name}</b>
      </>
    );
  }
  return (
    <>
      Signed in as <b>{member?.display_name ?? member?.email}</b> ({member?.role})
    </>
  );
}
