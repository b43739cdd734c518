import { useState } from 'preact/hooks';
import { call } from '../lib/api';
import type { ApiKeyResponse, BudgetResponse } from '../lib/api-types';
import { faultsOf } from '../lib/field-faults';
import { submitted } from '../lib/submitted';
import { useChange } from '../lib/use-change';
import { useResource } from '../lib/use-resource';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';
import { ScopeFields, scopeIn } from './scope-fields';
import { ACTIONS, UNITS } from './words';

type Measure = BudgetResponse['measure'];
type Action = BudgetResponse['action'];

const FIELDS = ['name', 'scope.key', 'scope.value', 'scope.api_key_id', 'measure', 'limit', 'thresholds'];
const DEFAULT_THRESHOLDS = [50, 80, 100];

interface EditProps {
  /** The budget to change. Undefined: a new one. */
  of?: BudgetResponse;
  keys: readonly ApiKeyResponse[];
  close: () => void;
  saved: (budget: BudgetResponse) => void;
}

export function EditBudget({ of, keys, close, saved }: EditProps) {
  const { send, problem, isBusy } = useChange();
  const [action, setAction] = useState<Action>(of?.action ?? 'warn');
  const faults = faultsOf(problem, FIELDS);
  const submit = async (event: SubmitEvent) => {
    const text = submitted(event);
    const common = {
      name: text('name'),
      limit: text('limit'),
      thresholds: numbersIn(text('thresholds')),
      action,
    };
    const budget = await send(() =>
      of === undefined
        ? call('POST /v1/budgets', {
            body: { ...common, scope: scopeIn(text), measure: text('measure') as Measure },
          })
        : call('PATCH /v1/budgets/{budget_id}', { path: { budget_id: of.id }, body: common }),
    );
    if (budget !== undefined) saved(budget);
  };
  return (
    <Dialog title={of ? 'Change the budget' : 'Create a budget'} close={close}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <Field label="Name (required)" fault={faults.at('name')}>
          <input name="name" required autofocus maxLength={100} defaultValue={of?.name} />
        </Field>
        {of === undefined && (
          <>
            <ScopeFields keys={keys} faultAt={faults.at} />
            <MeasureField fault={faults.at('measure')} />
          </>
        )}
        <Field
          label="Limit of a month (required)"
          hint={
            of === undefined || of.measure === 'cost'
              ? 'A decimal number, such as 500.00. A month is that of UTC.'
              : `In ${UNITS[of.measure]}. A month is that of UTC.`
          }
          fault={faults.at('limit')}
        >
          <input
            name="limit"
            required
            inputMode="decimal"
            autocomplete="off"
            placeholder="500.00"
            defaultValue={of?.limit}
          />
        </Field>
        <Field
          label="Events at these per cent of the limit"
          hint="Each has one event a month, which webhooks can receive."
          fault={faults.at('thresholds')}
        >
          <input
            name="thresholds"
            required
            autocomplete="off"
            defaultValue={(of?.thresholds ?? DEFAULT_THRESHOLDS).join(', ')}
          />
        </Field>
        <Field label="At 100 %" hint={ACTIONS[action].words}>
          <select
            name="action"
            value={action}
            onChange={({ currentTarget }) => setAction(currentTarget.value as Action)}
          >
            {Object.entries(ACTIONS).map(([value, { title }]) => (
              <option key={value} value={value}>
                {title}
              </option>
            ))}
          </select>
        </Field>
        {faults.rest !== undefined && <ErrorPanel problem={faults.rest} />}
        <p class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            {of ? 'Save' : 'Create'}
          </button>
        </p>
      </form>
    </Dialog>
  );
}

/** Money comes first where there are prices. */
function MeasureField({ fault }: { fault: string | undefined }) {
  const [chosen, setChosen] = useState<Measure>();
  const month = useResource('budgets:currency', (signal) => call('GET /v1/billing/usage', { signal }));
  const currency = month.data?.currency;
  const hint =
    currency === null ? 'A budget of cost needs a price book, which the operator gives.' : undefined;
  return (
    <Field label="Adds up" hint={hint} fault={fault}>
      <select
        name="measure"
        value={chosen ?? (currency === null ? 'vcpu_hours' : 'cost')}
        onChange={({ currentTarget }) => setChosen(currentTarget.value as Measure)}
      >
        <option value="cost" disabled={currency === null}>
          {currency == null ? 'cost' : `cost in ${currency}`}
        </option>
        {Object.entries(UNITS).map(([value, title]) => (
          <option key={value} value={value}>
            {title}
          </option>
        ))}
      </select>
    </Field>
  );
}

/** The service refuses a word that is no number, and names the field. */
function numbersIn(text: string): number[] {
  return text
    .split(/[\s,%]+/)
    .filter((word) => word !== '')
    .map(Number);
}
