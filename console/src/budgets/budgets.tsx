import { useState } from 'preact/hooks';
import { announce } from '../lib/announce';
import { attempt } from '../lib/attempt';
import { call } from '../lib/api';
import type { BudgetResponse } from '../lib/api-types';
import { API_URL } from '../lib/base';
import { useLive, useWhileChanging } from '../lib/live';
import { may } from '../lib/session';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { confirm } from '../parts/confirm';
import { CREATE_HERE, Empty } from '../parts/empty';
import { Loaded } from '../parts/loaded';
import { Page } from '../parts/page';
import { Pager } from '../parts/pager';
import { Budget } from './budget';
import { EditBudget } from './edit';
import { useKeys } from './keys';

const PAGE_SIZE = 50;
/** The use grows while sandboxes run, without an event. */
const ASK_EVERY_MS = 15_000;

export function Budgets() {
  const url = useUrlState();
  const [changed, setChanged] = useState<BudgetResponse>();
  const keys = useKeys();
  const query = { cursor: url.get('cursor') || undefined, limit: PAGE_SIZE };
  const list = useResource(`budgets:${JSON.stringify(query)}`, (signal) =>
    call('GET /v1/budgets', { query, signal }),
  );
  useLive('billing', list.reload);
  useWhileChanging(true, list.reload, ASK_EVERY_MS);
  const names = new Map((keys.data ?? []).map(({ id, name }) => [id, name]));
  const isChanger = may('org:admin');

  const remove = async ({ id, name }: BudgetResponse) => {
    const isConfirmed = await confirm({
      title: 'Delete this budget?',
      names: [name],
      consequence: 'Nothing is refused or stopped because of it any more. The usage and the events stay.',
      action: 'Delete',
    });
    if (!isConfirmed) return;
    const path = { budget_id: id };
    await attempt(() => call('DELETE /v1/budgets/{budget_id}', { path }), `Deleted ${name}.`);
    list.reload();
  };
  const saved = ({ name }: BudgetResponse) => {
    announce(`${changed === undefined ? 'Created' : 'Changed'} ${name}.`);
    setChanged(undefined);
    url.set({ create: undefined, cursor: query.cursor }, { replace: true });
    list.reload();
  };

  return (
    <Page
      title="Budgets"
      actions={
        isChanger && (
          <button type="button" class="primary" onClick={() => url.set({ create: 'form' })}>
            Create
          </button>
        )
      }
    >
      <Loaded resource={list}>
        {({ data, next_cursor, has_more }) =>
          data.length === 0 ? (
            <Empty title="No budget yet" create={{ scope: 'org:admin', how: CREATE_HERE, line: LINE }}>
              <p>
                A budget limits what a UTC month may cost, or its hours: of the organization, a label or a
                key. It warns before it is used up, and can refuse starts then.
              </p>
            </Empty>
          ) : (
            <>
              <div class="budgets">
                {data.map((budget) => (
                  <Budget
                    key={budget.id}
                    of={budget}
                    keys={names}
                    actions={
                      isChanger && (
                        <span class="actions">
                          <button
                            type="button"
                            aria-label={`Change ${budget.name}`}
                            onClick={() => setChanged(budget)}
                          >
                            Change
                          </button>
                          <button
                            type="button"
                            class="danger"
                            aria-label={`Delete ${budget.name}`}
                            onClick={() => void remove(budget)}
                          >
                            Delete
                          </button>
                        </span>
                      )
                    }
                  />
                ))}
              </div>
              <Pager next={next_cursor} hasMore={has_more} />
            </>
          )
        }
      </Loaded>
      {isChanger && url.get('create') !== '' && (
        <EditBudget
          keys={keys.data ?? []}
          close={() => url.set({ create: undefined, cursor: query.cursor })}
          saved={saved}
        />
      )}
      {changed !== undefined && (
        <EditBudget of={changed} keys={keys.data ?? []} close={() => setChanged(undefined)} saved={saved} />
      )}
    </Page>
  );
}

const LINE = `curl ${API_URL}/v1/budgets -H "authorization: Bearer $KEY" -H 'content-type: application/json' -d '{"name":"all","scope":{"type":"organization"},"measure":"vcpu_hours","limit":"1000","action":"refuse_starts"}'`;
