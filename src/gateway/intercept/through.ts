import { pipeline, type Readable, type Transform } from 'node:stream';

/** Joins `body` with the steps. An error of one of them ends all, and calls `fail`. */
export function through(body: Readable, steps: readonly Transform[], fail: () => void): Readable {
  pipeline([body, ...steps], (error) => {
    if (error) fail();
  });
  return steps.at(-1)!;
}
