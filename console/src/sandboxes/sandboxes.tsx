import { useState } from 'preact/hooks';
import { Lazy } from '../lib/lazy';
import { liveness, useLive, useWhileChanging } from '../lib/live';
import { may } from '../lib/session';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { CREATE_HERE, Empty } from '../parts/empty';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
import { Pager } from '../parts/pager';
import { Table } from '../parts/table';
import { TableView } from '../parts/table-view';
import { BulkActions } from './bulk-actions';
import { COLUMNS } from './columns';
import { NEWEST_FIRST, NO_FILTER, queryOf, searchOf, useFilters } from './filter';
import { FilterChips } from './filter-chips';
import { Filters } from './filters';
import { FIRST_LINE } from './first-line';
import { pageWithMatches } from './page-with-matches';
import { SavedFilters } from './saved-filters';
import { useWholeList } from './whole-list';
import { WholeTable } from './whole-table';

const PAGE_SIZE = 50;
const CHANGING: ReadonlySet<string> = new Set(['starting', 'stopping']);
const loadCreate = () => import('./create').then((module) => module.Create);

export function Sandboxes() {
  const url = useUrlState();
  const filters = useFilters();
  const query = { ...queryOf(url), limit: PAGE_SIZE };
  const isWhole = url.get('show') === 'all';
  const whole = useWholeList(query, isWhole);
  const list = useResource(
    `sandboxes:${isWhole ? 'whole' : JSON.stringify(query)}`,
    isWhole ? undefined : (signal) => pageWithMatches(query, signal),
    { keeps: true },
  );
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  useLive('sandbox', list.reload);
  useWhileChanging(list.data?.data.some(({ status }) => CHANGING.has(status)) ?? false, list.reload);
  const rows = isWhole ? whole.rows : (list.data?.data ?? []);
  const chosen = rows.filter(({ id }) => selected.has(id));
  const isChanger = may('sandboxes:write');
  // A selection serves changes alone.
  const selection = isChanger ? { selected, change: setSelected } : undefined;
  const isFiltered = searchOf(url) !== '' || query.cursor !== undefined;

  return (
    <Page
      title="Sandboxes"
      actions={
        <>
          <small>
            {liveness.value === 'live' ? '● live' : liveness.value === 'polling' ? 'every 3 s' : ''}
          </small>
          {isChanger && (
            <button type="button" class="primary" onClick={() => url.set({ create: 'form' })}>
              Create
            </button>
          )}
        </>
      }
    >
      <search class="bar">
        <Filters />
        <SavedFilters />
        <FilterChips />
        <span class="bar-end actions">
          {(isWhole || list.data?.has_more === true || query.cursor !== undefined) && (
            <button type="button" onClick={() => url.set({ show: isWhole ? undefined : 'all' })}>
              {isWhole ? 'Show pages' : 'Show all in one table'}
            </button>
          )}
          <TableView of="Sandboxes" columns={COLUMNS} />
        </span>
      </search>
      <BulkActions
        chosen={chosen}
        done={() => {
          setSelected(new Set());
          (isWhole ? whole : list).reload();
        }}
      />
      {isWhole ? (
        <WholeTable list={whole} selection={selection} />
      ) : (
        <div class="loaded" aria-busy={list.isStale}>
          <Loaded resource={list}>
            {({ data, has_more, next_cursor }) =>
              data.length > 0 ? (
                <>
                  <Table
                    caption="Sandboxes"
                    columns={COLUMNS}
                    rows={data}
                    id={({ id }) => id}
                    name={({ name }) => name}
                    selection={selection}
                    isWhole={!has_more && query.cursor === undefined}
                    sortedBy={NEWEST_FIRST}
                  />
                  <Pager next={next_cursor} hasMore={has_more} />
                </>
              ) : isFiltered ? (
                <Empty title="No sandbox matches">
                  <p>The filters leave none. Remove one of them, or all:</p>
                  <button type="button" onClick={() => filters.set(NO_FILTER)}>
                    Remove the filters
                  </button>
                </Empty>
              ) : (
                <Empty
                  title="No sandbox yet"
                  text="A sandbox is an isolated computer from an image, for code that you do not trust."
                  create={{ scope: 'sandboxes:write', how: CREATE_HERE, line: FIRST_LINE }}
                />
              )
            }
          </Loaded>
        </div>
      )}
      {url.get('create') !== '' && isChanger && <Lazy load={loadCreate} />}
    </Page>
  );
}
