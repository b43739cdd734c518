import { sleep } from './sleep.js';

/**
 * A background loop: runs `pass` again and again, sooner when woken, later after a failure, until it is stopped.
 */
export interface Loop {
  /** Runs the next pass at once instead of after the pause. A wake during a pass leads to one more pass. */
  wake: () => void;
  /** Lets the pass that is under way finish, then ends. Resolves when it has ended. */
  stop: () => Promise<void>;
}

export interface LoopOptions {
  /** Pause between two passes, in milliseconds. */
  intervalMs: number;
  /** Longest pause after repeated failures, in milliseconds. */
  maxBackoffMs?: number;
  /** A pass that was woken begins only when the one before is over for as long as it took, so that wakes never take up all the time. */
  rests?: boolean;
  onError: (error: unknown) => void;
}

export function startLoop(
  pass: (signal: AbortSignal) => Promise<void>,
  { intervalMs, maxBackoffMs = 30_000, rests = false, onError }: LoopOptions,
): Loop {
  const controller = new AbortController();
  let woken = false;
  let interrupt: () => void = () => undefined;

  async function pause(millis: number): Promise<void> {
    if (woken || controller.signal.aborted) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, millis);
      interrupt = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async function run(): Promise<void> {
    let failures = 0;
    while (!controller.signal.aborted) {
      woken = false;
      const begun = performance.now();
      try {
        await pass(controller.signal);
        failures = 0;
      } catch (error) {
        if (controller.signal.aborted) break;
        failures += 1;
        onError(error);
        // A wake must not turn a failing pass into a busy loop.
        woken = false;
      }
      if (rests) await sleep(Math.min(performance.now() - begun, intervalMs), controller.signal);
      await pause(failures === 0 ? intervalMs : Math.min(intervalMs * 2 ** failures, maxBackoffMs));
    }
  }

  const ended = run();
  return {
    wake() {
      woken = true;
      interrupt();
    },
    async stop() {
      controller.abort();
      interrupt();
      await ended;
    },
  };
}
