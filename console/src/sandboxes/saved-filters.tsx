import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { storedRecord } from '../lib/stored-record';
import { useUrlState } from '../lib/url-state';
import { Field } from '../parts/field';
import { Menu } from '../parts/menu';
import { searchOf } from './filter';

const MOST_LETTERS = 60;

/** These are always there. */
const GIVEN: Readonly<Record<string, string>> = {
  Running: 'status=running',
  Failed: 'status=failed',
  'On their way': 'status=starting&status=stopping',
  'Stopped by a limit': 'stop_reason=idle&stop_reason=max_duration&stop_reason=quota&stop_reason=oom',
};

/** The filters by their name, as the part of an address after the question mark. */
const saved = storedRecord('sandkeep.filters', (value): value is string => typeof value === 'string');

/** Filters with names. A filter of the user is kept by this browser; its link has the name and the filters. */
export function SavedFilters() {
  const url = useUrlState();
  const search = searchOf(url);
  const name = url.get('filter');
  const isGiven = Object.values(GIVEN).includes(search);
  return (
    <Menu title={name === '' ? 'Saved' : `Saved: ${name}`} label="Saved filters">
      {(close) => (
        <>
          <ul class="menu-list">
            {Object.entries(GIVEN).map(([name, filters]) => (
              <Entry key={name} name={name} filters={filters} close={close} />
            ))}
            {Object.entries(saved.value).map(([name, filters]) => (
              <Entry key={`own ${name}`} name={name} filters={filters} close={close} isOwn />
            ))}
          </ul>
          {search !== '' && !isGiven ? (
            <Save search={search} close={close} />
          ) : (
            <small>A filter that you choose can be saved here under a name.</small>
          )}
        </>
      )}
    </Menu>
  );
}

interface EntryProps {
  name: string;
  filters: string;
  close: () => void;
  isOwn?: boolean;
}

function Entry({ name, filters, close, isOwn = false }: EntryProps) {
  const remove = () => {
    const { [name]: _, ...others } = saved.value;
    saved.value = others;
  };
  return (
    <li>
      <Link
        href={`/sandboxes?${new URLSearchParams(`${filters}&filter=${encodeURIComponent(name)}`)}`}
        onClick={close}
      >
        {name}
      </Link>
      {isOwn && (
        <button type="button" class="quiet" aria-label={`Forget the filter ${name}`} onClick={remove}>
          ✕
        </button>
      )}
    </li>
  );
}

function Save({ search, close }: { search: string; close: () => void }) {
  const url = useUrlState();
  const [name, setName] = useState('');
  const given = name.trim();
  const save = (event: Event) => {
    event.preventDefault();
    if (given === '' || given in GIVEN) return;
    saved.value = { ...saved.value, [given]: search };
    url.set({ filter: given });
    close();
  };
  return (
    <form class="menu-form" onSubmit={save}>
      <Field label="Name of this filter">
        <input
          value={name}
          maxLength={MOST_LETTERS}
          autocomplete="off"
          onInput={({ currentTarget }) => setName(currentTarget.value)}
        />
      </Field>
      <button type="submit" disabled={given === '' || given in GIVEN}>
        Save
      </button>
    </form>
  );
}
