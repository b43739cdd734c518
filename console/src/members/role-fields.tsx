import { useState } from 'preact/hooks';
import type { OrgRole } from '../lib/api-types';
import { formatLabels } from '../lib/labels';
import { isOwner } from '../lib/session';
import { Field } from '../parts/field';
import { NARROWABLE, ROLE_NAMES, ROLES } from './roles';

/** The role of a member, and the labels that limit it. */
export function RoleFields(props: { role: OrgRole; labels: Record<string, string> }) {
  const [role, setRole] = useState(props.role);
  return (
    <>
      <Field label="Role" hint={ROLES[role]}>
        <select
          name="role"
          value={role}
          onChange={({ currentTarget }) => setRole(currentTarget.value as OrgRole)}
        >
          {ROLE_NAMES.filter((name) => name !== 'owner' || isOwner()).map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </Field>
      {NARROWABLE.includes(role) && (
        <Field label="Labels" hint="Only sandboxes that have all of them. Then volumes are closed.">
          <input
            name="labels"
            defaultValue={formatLabels(props.labels)}
            placeholder="team=ml, env=prod"
            spellcheck={false}
          />
        </Field>
      )}
    </>
  );
}
