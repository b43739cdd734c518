import { sleep } from './sleep.js';

/** A background loop that repeats a pass until it is stopped, with back-off after failures. */
export interface Loop {
  /** Ends the pause. A wake during a pass leads to one more pass. */
  wake: () => void;
  stop: () => Promise<void>;
}

export interface LoopOptions {
  intervalMs: number;
  maxBackoffMs?: number;
  /** Pauses after each pass for as long as it took, so that wakes use at most half of the time. */
  halfTime?: boolean;
  onError: (error: unknown) => void;
}

export function startLoop(
  pass: (signal: AbortSignal) => Promise<void>,
  { intervalMs, maxBackoffMs = 30_000, halfTime = false, onError }: LoopOptions,
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
        // Otherwise wakes would turn a failing pass into a busy loop.
        woken = false;
      }
      if (halfTime) await sleep(Math.min(performance.now() - begun, intervalMs), controller.signal);
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
