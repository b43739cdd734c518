interface NumberedProps {
  text: string;
  /** The name of the text, for screen readers. */
  of: string;
  /** The number of a line to point out. */
  marked: number | undefined;
}

/** A text with the numbers of its lines. */
export function Numbered({ text, of, marked }: NumberedProps) {
  return (
    <ol class="numbered" tabIndex={0} aria-label={of}>
      {text
        .replace(/\n$/, '')
        .split('\n')
        .map((line, place) => (
          <li key={place} class={place + 1 === marked ? 'bad' : ''}>
            {line === '' ? ' ' : line}
          </li>
        ))}
    </ol>
  );
}
