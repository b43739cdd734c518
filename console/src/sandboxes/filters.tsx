import { useEffect, useState } from 'preact/hooks';
import { parseLabels, shownLabels } from '../lib/labels';
import { Field } from '../parts/field';
import { Menu } from '../parts/menu';
import { Moment } from '../parts/moment';
import { REASONS, STATUSES, useFilters } from './filter';

const TYPING_MS = 250;

/** The search by name, and a menu of the other filters. */
export function Filters() {
  const url = useFilters();
  return (
    <>
      <Typed
        label="Name begins with"
        placeholder="Name begins with…"
        value={url.get('name_prefix')}
        change={(name_prefix) => url.set({ name_prefix }, { replace: true })}
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
      <Field label="Labels">
        <Typed
          label="Labels"
          placeholder="team=ml, env=prod"
          value={shownLabels(url.get('labels'))}
          change={(text) => {
            const labels = parseLabels(text);
            url.set(
              { labels: Object.keys(labels).length === 0 ? '' : JSON.stringify(labels) },
              { replace: true },
            );
          }}
        />
      </Field>
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

/** A text that takes effect when the typing pauses. */
function Typed(props: {
  label: string;
  value: string;
  placeholder: string;
  change: (value: string) => void;
}) {
  const [text, setText] = useState(props.value);
  const [isTyping, setTyping] = useState(false);
  useEffect(() => {
    if (!isTyping) return undefined;
    const timer = setTimeout(() => {
      setTyping(false);
      props.change(text);
    }, TYPING_MS);
    return () => clearTimeout(timer);
  }, [text, isTyping]);
  return (
    <input
      type="search"
      aria-label={props.label}
      placeholder={props.placeholder}
      value={isTyping ? text : props.value}
      onInput={({ currentTarget }) => {
        setText(currentTarget.value);
        setTyping(true);
      }}
    />
  );
}
