import { explainTaken, NO_SUCH_ADDRESS } from '../../../machine-network/published-ports.js';
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

/** For callers. Undefined: the error of the engine is not about a published port. */
export function explainPort(error: unknown): string | undefined {
  const message = engineMessage(error);
  const used = IN_USE.map((said) => said.exec(message)?.[1]).find((port) => port !== undefined);
  if (used !== undefined) return explainTaken(used);
  return NO_ADDRESS.test(message) ? NO_SUCH_ADDRESS : undefined;
}
