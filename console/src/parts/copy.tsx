import { copyText } from '../lib/copy-text';

export function Copy({ text, of }: { text: string; of: string }) {
  return (
    <button type="button" class="quiet" aria-label={`Copy the ${of}`} onClick={() => void copyText(text, of)}>
      Copy
    </button>
  );
}

/** A line or a few of code, with a button that copies it. */
export function CodeLines({ text, of }: { text: string; of: string }) {
  return (
    <div class="code-lines">
      <pre tabIndex={0} aria-label={of}>
        {text}
      </pre>
      <Copy text={text} of={of} />
    </div>
  );
}
