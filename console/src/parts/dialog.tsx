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
  const isShown = useRef(false);
  const title = useId();
  useLayoutEffect(() => {
    const before = document.activeElement;
    const shown = dialog.current;
    shown?.showModal();
    isShown.current = true;
    return () => {
      isShown.current = false;
      // Outside of a modal dialog nothing takes the focus until it is closed.
      shown?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={props.wide ? 'wide' : ''}
      aria-labelledby={title}
      onCancel={(event) => {
        // Escape must not close it by itself: the browser would return the focus first and report the end later. A key
        // pressed in between asks for the next dialog, which that late report would close.
        event.preventDefault();
        props.close();
      }}
      onClose={() => {
        if (isShown.current) props.close();
      }}
    >
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
