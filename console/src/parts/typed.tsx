import { useEffect, useState } from 'preact/hooks';

const TYPING_MS = 250;

/**
 * A text that takes effect when the typing pauses, and at last when the field loses the focus. Until then the field
 * shows the typed letters and not `value`: events draw the page anew in the middle of a word, and `value` has no comma
 * at its end.
 */
export function Typed({
  label,
  value,
  placeholder,
  change,
}: {
  label: string;
  value: string;
  placeholder: string;
  change: (value: string) => void;
}) {
  const [typed, setTyped] = useState<{ text: string; isDue: boolean }>();
  useEffect(() => {
    if (!typed?.isDue) return undefined;
    const timer = setTimeout(() => {
      setTyped({ ...typed, isDue: false });
      change(typed.text);
    }, TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  return (
    <input
      type="search"
      aria-label={label}
      placeholder={placeholder}
      value={typed?.text ?? value}
      onInput={({ currentTarget }) => setTyped({ text: currentTarget.value, isDue: true })}
      onBlur={() => {
        if (typed?.isDue) change(typed.text);
        setTyped(undefined);
      }}
    />
  );
}
