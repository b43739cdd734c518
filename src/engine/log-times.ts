const NANOS = 1_000_000_000n;
/** `2026-01-31T12:00:00.123456789Z`, as engines write every time of a log. */
const ENGINE_TIME = { length: 30, second: 19, fraction: 20 };
let latest = { second: '', nanos: 0n };

/** In nanoseconds since 1970. 0 for other texts. */
export function nanosOf(ts: string): bigint {
  const fraction = Number(ts.slice(ENGINE_TIME.fraction, -1));
  if (ts.length !== ENGINE_TIME.length || !ts.endsWith('Z') || !Number.isInteger(fraction))
    return parseNanos(ts);
  const second = ts.slice(0, ENGINE_TIME.second);
  if (second !== latest.second) latest = { second, nanos: parseNanos(`${second}Z`) };
  return latest.nanos + BigInt(fraction);
}

function parseNanos(ts: string): bigint {
  const match = /^(.+?)(?:\.(\d{1,9}))?(Z|[+-]\d{2}:\d{2})$/.exec(ts);
  const millis = match ? Date.parse(`${match[1]}${match[3]}`) : NaN;
  if (!match || Number.isNaN(millis)) return 0n;
  return BigInt(millis) * 1_000_000n + BigInt((match[2] ?? '').padEnd(9, '0'));
}

/** In seconds since 1970, with nine decimals. */
export function secondsOf(nanos: bigint): string {
  return `${nanos / NANOS}.${String(nanos % NANOS).padStart(9, '0')}`;
}
