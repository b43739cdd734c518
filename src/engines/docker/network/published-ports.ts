import { StartRefusedError } from '../../../engine/runtime.js';
import { sleep } from '../../../lib/sleep.js';
import type { PublishedPort } from '../../../spec/network-schema.js';
import { engineMessage } from '../errors.js';

/** The engine opens and closes the ports of the host with the pause container, in docs/decisions/0043. */
export function portOptions(ports: readonly PublishedPort[]): {
  exposed: Record<string, object>;
  bindings: Record<string, { HostIp: string; HostPort: string }[]>;
} {
  const bindings: ReturnType<typeof portOptions>['bindings'] = {};
  for (const { protocol, guest_port, host_bind, host_port } of ports) {
    (bindings[`${guest_port}/${protocol}`] ??= []).push({ HostIp: host_bind, HostPort: `${host_port}` });
  }
  return { exposed: Object.fromEntries(Object.keys(bindings).map((port) => [port, {}])), bindings };
}

/** An engine from version 28 on says the first, earlier ones the others. */
const IN_USE = [
  /failed to bind host port (?:for )?(\S+?)(?:\/\w+|:\d+\.\S+)?: address already in use/,
  /listen \w+ (\S+): bind: address already in use/,
  /Bind for (\S+) failed: port is already allocated/,
];
const NO_ADDRESS = /cannot assign requested address/;
/** A sandbox that was just deleted has the port until the engine has removed it. */
const PATIENCE_MS = 5_000;
const PAUSE_MS = 250;

/** Starts a container with published ports. Throws StartRefusedError when another program has one of them. */
export async function startPublished(start: () => Promise<unknown>): Promise<void> {
  for (const deadline = Date.now() + PATIENCE_MS; ; await sleep(PAUSE_MS)) {
    try {
      await start();
      return;
    } catch (error) {
      const message = engineMessage(error);
      const words = explainPort(message);
      if (words === undefined) throw error;
      if (Date.now() > deadline) throw new StartRefusedError(words, { cause: error });
    }
  }
}

export function explainPort(message: string): string | undefined {
  const used = IN_USE.map((said) => said.exec(message)?.[1]).find((port) => port !== undefined);
  if (used !== undefined)
    return `another program of the machine has the port ${used} of network.ports: start the sandbox again when the port is free, or create one with another host_port`;
  if (NO_ADDRESS.test(message))
    return 'the machine does not have an address of network.ports: the operator gives it the address, on macOS with "sudo ifconfig lo0 alias 127.0.0.2"; then start the sandbox again';
  return undefined;
}
