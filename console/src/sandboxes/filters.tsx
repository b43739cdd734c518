import { Field } from '../parts/field';
import { LabelsFilter } from '../parts/labels-filter';
import { Menu } from '../parts/menu';
import { Moment } from '../parts/moment';
import { Typed } from '../parts/typed';
import { REASONS, STATUSES, useFilters } from './filter';

/** The search by name, and a menu of the other filters. */
export function Filters() {
  const url = useFilters();
  return (
    <>
      <Typed
        label="Name contains"
        placeholder="Name contains…"
        value={url.get('name_contains')}
        change={(name_contains) => url.set({ name_contains }, { replace: true })}
      />
      <Menu title="Filter" label="Filters" class="filter-menu">
        {() => <Choices />}
      </Menu>
    </>
  );
}

function Choices() {
  const url = useFilters();
  const statuses = url.all('status');
  const toggle = (status: string) =>
    url.set({
      status: statuses.includes(status)
        ? statuses.filter((other) => other !== status)
        : [...statuses, status],
    });
  return (
    <>
      <fieldset class="choices">
        <legend>Status</legend>
        {STATUSES.map((status) => (
          <button
            key={status}
            type="button"
            aria-pressed={statuses.includes(status)}
            onClick={() => toggle(status)}
          >
            {status}
          </button>
        ))}
      </fieldset>
      <LabelsFilter of={url} />
      <Field label="Stopped for">
        <select
          value={url.get('stop_reason')}
          onChange={({ currentTarget }) => url.set({ stop_reason: currentTarget.value })}
        >
          <option value="">any reason</option>
          {REASONS.map((reason) => (
            <option key={reason} value={reason}>
              {reason.replaceAll('_', ' ')}
            </option>
          ))}
        </select>
      </Field>
      <Moment label="Created after" name="created_after" clears="filter" />
      <Moment label="Created before" name="created_before" clears="filter" />
    </>
  );
}
