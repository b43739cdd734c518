import { Field } from './field';

const CHOICES = [
  [0, 'none: it ends at once'],
  [3600, 'an hour'],
  [86_400, 'a day'],
  [604_800, 'a week'],
] as const;

/** The time for which a previous secret still works, in seconds. */
export function Overlap({ value, change }: { value: number; change: (seconds: number) => void }) {
  return (
    <Field label="Overlap">
      <select value={String(value)} onChange={({ currentTarget }) => change(Number(currentTarget.value))}>
        {CHOICES.map(([seconds, title]) => (
          <option key={seconds} value={String(seconds)}>
            {title}
          </option>
        ))}
      </select>
    </Field>
  );
}
