import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { RefObject } from 'preact';
import { density } from '../lib/preferences';

/** Shorter tables are drawn as a whole: the browser finds texts in all of their rows. */
const WHOLE = 200;
/** Rows beyond the edges of the screen, for a scroll that is faster than the next drawing. */
const BEYOND = 30;
/** The window moves by this many rows at once, so that most scroll events draw nothing. */
const STEP = 10;
const FIRST_ROWS = 60;

interface RowWindow {
  from: number;
  to: number;
  /** Heights of the rows that are not drawn, in pixels. */
  above: number;
  below: number;
}

interface Bounds {
  from: number;
  to: number;
  height: number;
}

/**
 * The rows of a long table that are near the screen. Undefined: all of them. It relies on rows of one line, which have
 * the same height; an unfolded row makes the scroll bar wrong by its own height only.
 */
export function useRowWindow(count: number, body: RefObject<HTMLTableSectionElement>): RowWindow | undefined {
  const isLong = count > WHOLE;
  const [bounds, setBounds] = useState<Bounds>({ from: 0, to: FIRST_ROWS, height: 0 });
  const shown = useRef(bounds);
  shown.current = bounds;
  useLayoutEffect(() => {
    if (!isLong) return undefined;
    let frame = 0;
    const measure = () => {
      frame = 0;
      const row = body.current?.querySelector('tr:not(.gap)');
      if (body.current === null || !(row instanceof HTMLElement)) return;
      const height = row.offsetHeight;
      const first = Math.floor(-body.current.getBoundingClientRect().top / height);
      const from = Math.max(0, Math.floor((first - BEYOND) / STEP) * STEP);
      const to = Math.ceil((first + innerHeight / height + BEYOND) / STEP) * STEP;
      const before = shown.current;
      if (before.from === from && before.to === to && before.height === height) return;
      setBounds({ from, to, height });
    };
    const later = () => {
      frame ||= requestAnimationFrame(measure);
    };
    measure();
    // Scroll events do not bubble: those of every scrolled element pass here while they descend.
    addEventListener('scroll', later, { passive: true, capture: true });
    addEventListener('resize', later);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener('scroll', later, { capture: true });
      removeEventListener('resize', later);
    };
  }, [isLong, count, density.value]);
  if (!isLong) return undefined;
  const to = Math.min(bounds.to, count);
  const from = Math.min(bounds.from, Math.max(0, to - STEP));
  return { from, to, above: from * bounds.height, below: (count - to) * bounds.height };
}
