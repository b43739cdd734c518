/** How long a random test runs: for some seconds, or exactly the number of rounds that repeats a failure. */
export interface Budget {
  /** For the name of the test. */
  text: string;
  /** For the test, in milliseconds. */
  timeoutMs: number;
  /** A run of fewer rounds counts as a failure. */
  least: number;
  /** How many rounds may still follow: any number until the time is over, then none. */
  left(done: number): number;
}

interface Options {
  /** The environment variable for the time. */
  seconds: string;
  /** The environment variable for the number of rounds, which replaces the time. */
  count: string;
  defaultSeconds: number;
  least: number;
  /** The longest time that a round takes on a busy machine, in milliseconds. */
  roundMs: number;
}

/** The time begins with the first call of `left`. */
export function readBudget({ seconds, count, defaultSeconds, least, roundMs }: Options): Budget {
  const rounds = readPositive(count);
  if (rounds !== undefined) {
    return {
      text: `${rounds} rounds`,
      timeoutMs: 240_000 + rounds * roundMs,
      least: rounds,
      left: (done) => rounds - done,
    };
  }
  const millis = (readPositive(seconds) ?? defaultSeconds) * 1_000;
  let end: number | undefined;
  return {
    text: `${millis / 1_000} s`,
    timeoutMs: 240_000 + millis + least * roundMs,
    least,
    left(done) {
      end ??= performance.now() + millis;
      return done < least || performance.now() < end ? Infinity : 0;
    },
  };
}

/** The seed that the environment names, or another one each time. */
export function readSeed(name: string): number {
  return readPositive(name) ?? (Date.now() % 1_000_000) + 1;
}

function readPositive(name: string): number | undefined {
  const text = process.env[name];
  if (text === undefined) return undefined;
  const value = Number(text);
  if (!(value > 0)) throw new Error(`${name}=${text} is not a positive number`);
  return value;
}
