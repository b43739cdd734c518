import { dismiss, notices } from '../lib/announce';

export function Notices() {
  return (
    <div class="notices" role="log" aria-live="polite" aria-label="Notices">
      {notices.value.map(({ id, text, isFault }) => (
        <p key={id} class={isFault ? 'notice fault' : 'notice'}>
          {text}
          <button type="button" class="quiet" aria-label="Dismiss" onClick={() => dismiss(id)}>
            ✕
          </button>
        </p>
      ))}
    </div>
  );
}
