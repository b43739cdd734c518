import { useState } from 'preact/hooks';

const SHOWN = 2;

/** Labels. With `folded`, those after the second are a count that shows them. */
export function Tags({ of, folded = false }: { of: Readonly<Record<string, string>>; folded?: boolean }) {
  const [isOpen, setOpen] = useState(false);
  const labels = Object.entries(of);
  const isCut = folded && !isOpen && labels.length > SHOWN;
  return (
    <span class={folded ? (isOpen ? 'tags open' : 'tags') : ''}>
      {(isCut ? labels.slice(0, SHOWN) : labels).map(([key, value]) => (
        <span key={key} class="tag" title={`${key}=${value}`}>
          {key}={value}
        </span>
      ))}
      {isCut && (
        <button
          type="button"
          class="tag more"
          title={labels
            .slice(SHOWN)
            .map(([key, value]) => `${key}=${value}`)
            .join(', ')}
          aria-label={`+${labels.length - SHOWN}, show all`}
          onClick={() => setOpen(true)}
        >
          +{labels.length - SHOWN}
        </button>
      )}
    </span>
  );
}
