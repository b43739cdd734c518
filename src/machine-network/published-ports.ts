import { StartRefusedError } from '../engine/runtime.js';
import { sleep } from '../lib/sleep.js';

/** A sandbox that was just deleted has the port until the engine has removed it. */
const PATIENCE_MS = 5_000;
const PAUSE_MS = 250;

/**
 * Starts something with published ports. `explain`: the words for callers where another program has one of them.
 * Undefined: the error is another one. Throws StartRefusedError.
 */
export async function startPublished(
  start: () => Promise<unknown>,
  explain: (error: unknown) => string | undefined,
): Promise<void> {
  for (const deadline = Date.now() + PATIENCE_MS; ; await sleep(PAUSE_MS)) {
    try {
      await start();
      return;
    } catch (error) {
      const words = explain(error);
      if (words === undefined) throw error;
      if (Date.now() > deadline) throw new StartRefusedError(words, { cause: error });
    }
  }
}

/** `port`: with its address, such as `127.0.0.2:20000`. */
export function explainTaken(port: string): string {
  return `another program of the machine has the port ${port} of network.ports: start the sandbox again when the port is free, or create one with another host_port`;
}

export const NO_SUCH_ADDRESS =
  'the machine does not have an address of network.ports: the operator gives it the address, on macOS with "sudo ifconfig lo0 alias 127.0.0.2"; then start the sandbox again';
