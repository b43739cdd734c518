import { useEffect, useRef, useState } from 'preact/hooks';
import { call, Problem } from '../lib/api';
import type { SandboxResponse } from '../lib/api-types';
import { connection, retryWhenBack } from '../lib/connection';
import { useEvents } from '../lib/live';
import type { queryOf } from './filter';

/** A browser holds these in about 30 MB. */
export const MOST_ROWS = 10_000;
const PAGE_SIZE = 100;
/** A change of a listed sandbox is shown after this time. */
const GATHER_MS = 200;
const READ_AT_ONCE = 6;
/** The whole list is read again for sandboxes that are new, or no longer match: a hundred requests at most. */
const AGAIN_MS = 15_000;
/** More changes than these are cheaper by a new list. */
const MOST_CHANGES = 100;

interface WholeList {
  rows: readonly SandboxResponse[];
  /** Every matching row is there, or the first 10,000. */
  isComplete: boolean;
  hasMore: boolean;
  problem: Problem | undefined;
  reload: () => void;
}

type Shown = Omit<WholeList, 'reload'>;
type Query = ReturnType<typeof queryOf>;

const NOTHING: Shown = { rows: [], isComplete: false, hasMore: false, problem: undefined };

/** All matching sandboxes up to 10,000, page after page. Rows that changed are read again one by one. */
export function useWholeList(query: Query, isWanted: boolean): WholeList {
  const key = isWanted ? JSON.stringify({ ...query, cursor: undefined }) : '';
  const [shown, setShown] = useState<Shown & { key: string }>({ ...NOTHING, key });
  const [round, setRound] = useState(0);
  const reload = () => setRound((value) => value + 1);
  const rows = useRef<ReadonlyMap<string, SandboxResponse>>(new Map());
  const changed = useRef(new Set<string>());
  const timer = useRef<ReturnType<typeof setTimeout>>();

  useEffect(() => {
    if (key === '') return undefined;
    const controller = new AbortController();
    const { signal } = controller;
    const isAgain = shown.key === key && shown.isComplete;
    const before = isAgain ? rows.current : new Map<string, SandboxResponse>();
    const read = async () => {
      const found = new Map<string, SandboxResponse>();
      let cursor: string | null | undefined;
      try {
        do {
          const page = await call('GET /v1/sandboxes', {
            query: { ...query, cursor: cursor ?? undefined, limit: PAGE_SIZE },
            signal,
          });
          for (const row of page.data) found.set(row.id, sameOr(before.get(row.id), row));
          cursor = page.next_cursor;
          const isComplete = cursor == null || found.size >= MOST_ROWS;
          if (signal.aborted) return;
          connection.value = 'up';
          // The previous rows stay until all of the present ones are there.
          if (isAgain && !isComplete) continue;
          rows.current = found;
          setShown({
            key,
            rows: [...found.values()],
            isComplete,
            hasMore: cursor != null,
            problem: undefined,
          });
        } while (cursor != null && found.size < MOST_ROWS);
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof Problem)) throw error;
        if (error.status === 0) retryWhenBack(signal, reload);
        setShown((value) => ({ ...value, key, problem: error }));
      }
    };
    void read();
    return () => controller.abort();
  }, [key, round]);

  const readChanged = async () => {
    const ids = [...changed.current];
    changed.current.clear();
    if (ids.length > MOST_CHANGES) {
      reload();
      return;
    }
    const read = new Map<string, SandboxResponse | null>();
    const work = async () => {
      for (let id = ids.pop(); id !== undefined; id = ids.pop()) {
        const row = await readRow(id);
        if (row !== undefined) read.set(id, row);
      }
    };
    await Promise.all(Array.from({ length: READ_AT_ONCE }, work));
    // Meanwhile there may be another list, also of another filter: its rows alone are replaced.
    const next = new Map(rows.current);
    for (const [id, row] of read) {
      const known = next.get(id);
      if (known === undefined) continue;
      if (row === null) next.delete(id);
      else next.set(id, sameOr(known, row));
    }
    rows.current = next;
    setShown((value) => ({ ...value, rows: [...next.values()] }));
  };
  const isDue = useRef(false);
  useEvents('sandbox', (event) => {
    if (key === '') return;
    isDue.current = true;
    const id = (event?.payload as { sandbox_id?: string } | undefined)?.sandbox_id;
    if (id === undefined || !rows.current.has(id)) return;
    changed.current.add(id);
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      void readChanged();
    }, GATHER_MS);
  });
  useEffect(() => {
    if (key === '') return undefined;
    const again = setInterval(() => {
      if (document.hidden || !isDue.current) return;
      isDue.current = false;
      reload();
    }, AGAIN_MS);
    return () => {
      clearInterval(again);
      clearTimeout(timer.current);
      timer.current = undefined;
    };
  }, [key]);

  return { ...(shown.key === key ? shown : NOTHING), reload };
}

/** Equal rows stay the same object, so that the table draws none of them again. */
function sameOr(before: SandboxResponse | undefined, row: SandboxResponse): SandboxResponse {
  return before !== undefined && JSON.stringify(before) === JSON.stringify(row) ? before : row;
}

/** Null: it is gone. Undefined: it could not be read, and the next list shows it. */
async function readRow(id: string): Promise<SandboxResponse | null | undefined> {
  try {
    return await call('GET /v1/sandboxes/{sandbox_id}', { path: { sandbox_id: id } });
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return error.status === 404 ? null : undefined;
  }
}
