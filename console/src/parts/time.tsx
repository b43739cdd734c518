import { currentTime } from '../lib/clock';
import { timeZone } from '../lib/preferences';
import { ago, dateTime } from '../lib/time';

/** A time in the chosen zone, or how long ago it was. The exact one is its tooltip. */
export function Time({ at, relative = false }: { at: string | null | undefined; relative?: boolean }) {
  if (at == null) return <>–</>;
  return (
    <time dateTime={at} title={at}>
      {relative ? ago(at, currentTime()) : dateTime(at, timeZone.value)}
    </time>
  );
}
