import { useState } from 'preact/hooks';
import type { EventResponse } from '../lib/api-types';
import { useUrlState } from '../lib/url-state';
import { Field } from '../parts/field';
import { Moment } from '../parts/moment';
import { ACTOR_KINDS, FIELD_NAMES, FIELDS, type FieldName } from './filter';

/** `events`: their values are suggested. */
export function Filters({ events }: { events: readonly EventResponse[] }) {
  const url = useUrlState();
  const [name, setName] = useState<FieldName>('event_type');
  const [isExcluded, setExcluded] = useState(false);
  const [value, setValue] = useState('');
  const add = () => {
    const text = value.trim();
    if (text === '') return;
    const given = `${isExcluded ? '!' : ''}${text}`;
    url.set({ [name]: [...new Set([...url.all(name), given])] });
    setValue('');
  };
  const suggested =
    name === 'actor_kind' ? ACTOR_KINDS : [...new Set(events.map((event) => valueOf(event, name)))];
  return (
    <search>
      <form
        class="filters"
        onSubmit={(event) => {
          event.preventDefault();
          add();
        }}
      >
        <Field label="Filter by">
          <select value={name} onChange={({ currentTarget }) => setName(currentTarget.value as FieldName)}>
            {FIELD_NAMES.map((field) => (
              <option key={field} value={field}>
                {FIELDS[field]}
              </option>
            ))}
          </select>
        </Field>
        <Field label="Keep or exclude">
          <select
            value={isExcluded ? 'not' : 'is'}
            onChange={({ currentTarget }) => setExcluded(currentTarget.value === 'not')}
          >
            <option value="is">is</option>
            <option value="not">is not</option>
          </select>
        </Field>
        <Field label="Value">
          <input
            list="audit-values"
            value={value}
            autocomplete="off"
            spellcheck={false}
            onInput={({ currentTarget }) => setValue(currentTarget.value)}
          />
        </Field>
        <datalist id="audit-values">
          {suggested.filter(Boolean).map((text) => (
            <option key={text} value={text} />
          ))}
        </datalist>
        <button type="submit">Add filter</button>
        <Moment label="Since" name="since" />
        <Moment label="Until" name="until" />
      </form>
      <Given />
    </search>
  );
}

/** The filters in force: each can be turned around or removed. */
function Given() {
  const url = useUrlState();
  const given = FIELD_NAMES.flatMap((name) => url.all(name).map((value) => ({ name, value })));
  if (given.length === 0) return null;
  const replace = (name: FieldName, value: string, next: string[]) =>
    url.set({ [name]: url.all(name).flatMap((other) => (other === value ? next : other)) });
  return (
    <ul class="chips" aria-label="Filters in force">
      {given.map(({ name, value }) => {
        const isExcluded = value.startsWith('!');
        const text = isExcluded ? value.slice(1) : value;
        const shown = `${FIELDS[name]} ${isExcluded ? 'is not' : 'is'} ${text}`;
        return (
          <li key={`${name} ${value}`} class={isExcluded ? 'chip excluded' : 'chip'}>
            <span>{FIELDS[name]}</span>
            <button
              type="button"
              class="quiet"
              aria-label={`${shown}. Turn around`}
              title={isExcluded ? 'Keep these instead' : 'Exclude these instead'}
              onClick={() => replace(name, value, [isExcluded ? text : `!${text}`])}
            >
              {isExcluded ? 'is not' : 'is'}
            </button>
            <code>{text}</code>
            <button
              type="button"
              class="quiet"
              aria-label={`Remove: ${shown}`}
              onClick={() => replace(name, value, [])}
            >
              ✕
            </button>
          </li>
        );
      })}
    </ul>
  );
}

function valueOf(event: EventResponse, name: FieldName): string {
  if (name === 'event_type' || name === 'category') return event[name];
  return name === 'actor_id' ? actorIdOf(event) : '';
}

export function actorIdOf({ actor }: EventResponse): string {
  if (actor.kind === 'user') return actor.user_id;
  if (actor.kind === 'api_key') return actor.api_key_id;
  return actor.kind === 'system' ? actor.code : actor.key_id;
}
