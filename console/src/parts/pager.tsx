import { useUrlState } from '../lib/url-state';

/** Pages by cursor. "First page" is a link of its own, and "back" of the browser is the previous page. */
export function Pager({ next, hasMore }: { next: string | null | undefined; hasMore: boolean }) {
  const url = useUrlState();
  const isFirst = url.get('cursor') === '';
  if (isFirst && !hasMore) return null;
  return (
    <nav class="pager" aria-label="Pages">
      <button type="button" disabled={isFirst} onClick={() => url.set({ cursor: undefined })}>
        First page
      </button>
      <button
        type="button"
        disabled={!hasMore || next == null}
        onClick={() => url.set({ cursor: next ?? undefined })}
      >
        Next page
      </button>
    </nav>
  );
}
