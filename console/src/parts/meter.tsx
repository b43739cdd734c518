interface MeterProps {
  label: string;
  used: number;
  /** Null or undefined: without a limit. */
  limit: number | null | undefined;
  words: (amount: number) => string;
}

/** From this share of a limit on, an amount is near it. */
export const NEAR = 0.8;

/** An amount beside its limit, as a bar and in words. */
export function Meter({ label, used, limit, words }: MeterProps) {
  if (limit == null) return <span>{words(used)}, no limit</span>;
  const share = limit === 0 ? 1 : used / limit;
  const state = share >= 1 ? 'full' : share >= NEAR ? 'near' : 'free';
  return (
    <span class={`meter ${state}`}>
      <progress max={1} value={Math.min(1, share)} aria-label={label} />
      <span>
        {words(used)} of {words(limit)}
        {state === 'full' && ', used up'}
        {state === 'near' && ', nearly used up'}
      </span>
    </span>
  );
}
