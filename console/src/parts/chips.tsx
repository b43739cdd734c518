interface Chip {
  /** The filter as words, such as "status is running". */
  text: string;
  remove: () => void;
}

/** The filters in force. Each can be removed. */
export function Chips({ of, removeAll }: { of: readonly Chip[]; removeAll: () => void }) {
  if (of.length === 0) return null;
  return (
    <ul class="chips" aria-label="Filters in force">
      {of.map(({ text, remove }) => (
        <li key={text} class="chip">
          <span title={text}>{text}</span>
          <button type="button" class="quiet" aria-label={`Remove: ${text}`} onClick={remove}>
            ✕
          </button>
        </li>
      ))}
      {of.length > 1 && (
        <li>
          <button type="button" class="link" onClick={removeAll}>
            Remove all
          </button>
        </li>
      )}
    </ul>
  );
}
