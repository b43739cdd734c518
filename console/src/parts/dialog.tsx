import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef } from 'preact/hooks';

/** A modal dialog. Escape closes it, and the focus returns to the element that had it. */
export function Dialog(props: {
  title: string;
  close: () => void;
  wide?: boolean;
  children: ComponentChildren;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const title = useId();
  useLayoutEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog ref={dialog} class={props.wide ? 'wide' : ''} aria-labelledby={title} onClose={props.close}>
      <header>
        <h2 id={title}>{props.title}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={props.close}>
          ✕
        </button>
      </header>
      {props.children}
    </dialog>
  );
}
