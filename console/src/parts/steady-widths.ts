import type { RefObject } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';

/**
 * Columns of a long table only grow while its rows pass, so that they do not jump. `key`: names what the widths depend
 * on. The rows of a page that is whole keep the widths that the browser gives them.
 */
export function useSteadyWidths(head: RefObject<HTMLTableRowElement>, isLong: boolean, key: string): void {
  const seen = useRef<{ key: string; width: number; columns: number[] }>({ key: '', width: 0, columns: [] });
  useLayoutEffect(() => {
    const row = head.current;
    if (row === null) return;
    const cells = [...row.cells];
    const { clientWidth } = row.closest('.table-scroll') ?? row;
    if (!isLong || seen.current.key !== key || seen.current.width !== clientWidth) {
      for (const cell of cells) cell.style.minWidth = '';
      seen.current = { key, width: clientWidth, columns: [] };
    }
    if (!isLong) return;
    for (const [place, cell] of cells.entries()) {
      if (cell.classList.contains('wide')) continue;
      const width = cell.getBoundingClientRect().width;
      if (width <= (seen.current.columns[place] ?? 0)) continue;
      seen.current.columns[place] = width;
      cell.style.minWidth = `${width}px`;
    }
  });
}
