import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';

/** The heading of a page. It takes the focus when the page opens, so that a screen reader says where it is. */
export function Page(props: { title: string; actions?: ComponentChildren; children: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  // With the page itself, not a frame later: the user may have moved the focus on by then.
  useLayoutEffect(() => heading.current?.focus({ preventScroll: true }), []);
  useEffect(() => {
    document.title = `${props.title} · Sandkeep`;
  }, [props.title]);
  return (
    <>
      <header class="page-header">
        <h1 ref={heading} tabIndex={-1}>
          {props.title}
        </h1>
        {props.actions !== undefined && <div class="actions">{props.actions}</div>}
      </header>
      {props.children}
    </>
  );
}
