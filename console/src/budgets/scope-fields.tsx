import { useState } from 'preact/hooks';
import type { ApiKeyResponse, CreateBudgetRequest } from '../lib/api-types';
import { Field } from '../parts/field';

type Scope = CreateBudgetRequest['scope'];

const SCOPES: Record<Scope['type'], { title: string; hint: string }> = {
  organization: {
    title: 'the whole organization',
    hint: 'All usage. A cost contains volumes and snapshots.',
  },
  label: { title: 'sandboxes with a label', hint: 'The time in which sandboxes have the label.' },
  api_key: { title: 'runs of an API key', hint: 'The runs that requests of the key started.' },
};

interface ScopeFieldsProps {
  keys: readonly ApiKeyResponse[];
  faultAt: (field: string) => string | undefined;
}

/** The usage that a new budget covers. */
export function ScopeFields({ keys, faultAt }: ScopeFieldsProps) {
  const [type, setType] = useState<Scope['type']>('organization');
  const active = keys.filter(({ revoked_at }) => revoked_at === null);
  return (
    <>
      <Field label="Covers" hint={SCOPES[type].hint}>
        <select
          name="scope"
          value={type}
          onChange={({ currentTarget }) => setType(currentTarget.value as Scope['type'])}
        >
          {Object.entries(SCOPES).map(([value, { title }]) => (
            <option key={value} value={value}>
              {title}
            </option>
          ))}
        </select>
      </Field>
      {type === 'label' && (
        <div class="form-grid">
          <Field label="Key of the label (required)" fault={faultAt('scope.key')}>
            <input name="label_key" required spellcheck={false} placeholder="team" />
          </Field>
          <Field label="Value of the label" fault={faultAt('scope.value')}>
            <input name="label_value" spellcheck={false} placeholder="ml" />
          </Field>
        </div>
      )}
      {type === 'api_key' && (
        <Field label="API key (required)" fault={faultAt('scope.api_key_id')}>
          <select name="api_key" required>
            {active.map(({ id, name, prefix }) => (
              <option key={id} value={id}>
                {name} ({prefix}…)
              </option>
            ))}
          </select>
        </Field>
      )}
    </>
  );
}

/** The scope of the submitted fields. */
export function scopeIn(text: (name: string) => string): Scope {
  const type = text('scope') as Scope['type'];
  if (type === 'label') return { type, key: text('label_key'), value: text('label_value') };
  if (type === 'api_key') return { type, api_key_id: text('api_key') };
  return { type };
}
