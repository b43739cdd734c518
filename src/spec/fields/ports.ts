import { isIPv6 } from 'node:net';
import { Type } from 'typebox';
import { Nullable } from '../../http/schema.js';
import { blocksEverything } from '../../network-policy/order.js';
import { dependsOnSource, mayArrive } from '../../network-policy/arrivals.js';
import { field, type OtherFields } from '../field.js';
import { PortToPublish, PublishedPort } from '../network-schema.js';
import { canonicalAddress, isLoopback, overlap, withDefaults } from '../published-port.js';
import { refuse } from '../refuse.js';
import { MOST } from '../size-limits.js';

const MOST_PORT = 65_535;

export const ports = field({
  schema: Nullable(
    Type.Array(PortToPublish, {
      maxItems: MOST.ports,
      description: 'The ports to publish on the host. Null: none.',
    }),
  ),
  answer: Type.Array(PublishedPort, { description: 'The ports that are published on the host.' }),
  default: null,
  check(value, { field: path, whole }) {
    const asked = value ?? [];
    asked.forEach((port, index) => checkPort(port, `${path}[${index}]`, whole));
    const complete = asked.map(withDefaults);
    complete.forEach((port, index) => {
      const other = complete.findIndex(
        (earlier, at) => at < index && earlier.host_port !== 0 && overlap(earlier, port),
      );
      if (other !== -1)
        refuse(`${path}[${index}].host_port`, `${path}[${other}] has this port of the host already`);
    });
  },
  requires: (value, { field: path }) => [
    (value ?? []).length > 0 && { capability: 'published_ports', what: 'publish ports on the host' },
    ...(value ?? []).map(
      (port, index) =>
        isIPv6(withDefaults(port).host_bind) && {
          capability: 'published_ipv6' as const,
          field: `${path}[${index}].host_bind`,
          what: 'publish ports on an IPv6 address of the host',
        },
    ),
  ],
  // The ports of the host were chosen before, in the transaction of the create.
  show: (value) => (value ?? []).map(withDefaults),
  run: (value) => (value && value.length > 0 ? { ports: value.map(withDefaults) } : {}),
});

function checkPort(port: PortToPublish, path: string, { network = {} }: OtherFields): void {
  const { guest_port: guest, host_port: host = 0, host_bind: bind, protocol = 'tcp' } = port;
  if (guest < 1 || guest > MOST_PORT) refuse(`${path}.guest_port`, `a port is 1 to ${MOST_PORT}`);
  if (host > MOST_PORT) refuse(`${path}.host_port`, `a port is 1 to ${MOST_PORT}, or 0 for a free one`);
  const address = bind === undefined ? undefined : canonicalAddress(bind);
  if (bind !== undefined && address === undefined)
    refuse(`${path}.host_bind`, 'host_bind is an IPv4 or IPv6 address, without a zone');
  const { enabled = true, policy } = network;
  if (!enabled)
    refuse(`${path}.guest_port`, 'network.enabled is false: a sandbox without a network publishes no ports');
  if (!policy) return;
  const isOfMachine = isLoopback(withDefaults(port).host_bind);
  if (blocksEverything(policy) || !mayArrive(policy, protocol, guest, isOfMachine ? 'host' : 'anywhere'))
    refuse(
      `${path}.guest_port`,
      `network.policy denies what arrives at ${protocol} port ${guest}${isOfMachine ? ' from the machine' : ''}: allow it there, in a rule for ingress${isOfMachine ? ' from the group "host"' : ''} or by default_ingress, or do not publish the port`,
    );
  // The engine carries IPv6 of the host to a network of IPv4. The connections then come from the machine.
  if (!isOfMachine && address?.includes(':') && dependsOnSource(policy, protocol, guest))
    refuse(
      `${path}.host_bind`,
      `network.policy decides by their source who reaches ${protocol} port ${guest}, and connections to an IPv6 address lose theirs: use an IPv4 address, or rules for "any"`,
    );
}
