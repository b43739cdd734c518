import { useEffect, useState } from 'preact/hooks';
import type { SandboxStatus, SandboxStopReason } from '../lib/api-types';
import { formatLabels, parseLabels } from '../lib/labels';
import { useUrlState } from '../lib/url-state';
import { Field } from '../parts/field';
import { Moment } from '../parts/moment';
import { sortOf } from './sort';

const STATUSES: Record<SandboxStatus, true> = {
  created: true,
  starting: true,
  running: true,
  stopping: true,
  stopped: true,
  failed: true,
};
const REASONS: Record<SandboxStopReason, true> = {
  requested: true,
  idle: true,
  max_duration: true,
  quota: true,
  command: true,
  oom: true,
  disk_full: true,
  secret_violation: true,
  engine: true,
  lost: true,
  start_failed: true,
};
const TYPING_MS = 250;

export function Filters() {
  const url = useUrlState();
  const statuses = url.all('status');
  const toggle = (status: string) =>
    url.set({
      status: statuses.includes(status)
        ? statuses.filter((other) => other !== status)
        : [...statuses, status],
    });
  return (
    <search>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <Typed
          label="Name begins with"
          value={url.get('name_prefix')}
          change={(name_prefix) => url.set({ name_prefix }, { replace: true })}
        />
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
        <Moment label="Created after" name="created_after" />
        <Moment label="Created before" name="created_before" />
        <Field label="Order">
          <select
            value={sortOf(url)}
            onChange={({ currentTarget }) => url.set({ sort: currentTarget.value })}
          >
            <option value="-created_at">newest first</option>
            <option value="created_at">oldest first</option>
            <option value="name">by name</option>
          </select>
        </Field>
        <Field label="Stopped for">
          <select
            value={url.get('stop_reason')}
            onChange={({ currentTarget }) => url.set({ stop_reason: currentTarget.value })}
          >
            <option value="">any reason</option>
            {Object.keys(REASONS).map((reason) => (
              <option key={reason} value={reason}>
                {reason.replaceAll('_', ' ')}
              </option>
            ))}
          </select>
        </Field>
        <fieldset class="choices">
          <legend>Status</legend>
          {Object.keys(STATUSES).map((status) => (
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
      </form>
    </search>
  );
}

function shownLabels(json: string): string {
  if (json === '') return '';
  try {
    return formatLabels(JSON.parse(json) as Record<string, unknown>);
  } catch {
    return json;
  }
}

/** A text that takes effect when the typing pauses. */
function Typed(props: {
  label: string;
  value: string;
  placeholder?: string;
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
    <Field label={props.label}>
      <input
        type="search"
        placeholder={props.placeholder}
        value={isTyping ? text : props.value}
        onInput={({ currentTarget }) => {
          setText(currentTarget.value);
          setTyping(true);
        }}
      />
    </Field>
  );
}
