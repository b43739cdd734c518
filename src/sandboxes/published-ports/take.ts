import { randomInt } from 'node:crypto';
import type { Caller } from '../../access/caller.js';
import { isNarrowed } from '../../access/access.js';
import { ADVISORY_LOCKS, lockAdvisory } from '../../db/advisory-locks.js';
import type { Sql } from '../../db/pool.js';
import { ApiError } from '../../http/errors.js';
import { portRange } from '../../lib/port-ranges.js';
import type { Settings } from '../../settings.js';
import { DEFAULT_BIND, type PublishedPort } from '../../spec/network-schema.js';
import { isLocalhost, isLoopback, sharePorts, withDefaults } from '../../spec/published-port.js';
import { refuse } from '../../spec/refuse.js';
import type { CreateSandboxRequest } from '../../spec/specification.js';
import { holderOf, takenHostPorts } from './queries.js';

type Allowed = Pick<Settings, 'publishedPorts' | 'publishedAddresses'>;
type WithPorts = Pick<CreateSandboxRequest, 'network'>;

/** Refuses ports and addresses of the host that the operator does not give to sandboxes. */
export function checkPublished(
  { publishedPorts, publishedAddresses }: Allowed,
  { network }: WithPorts,
): void {
  const ranges = publishedPorts.map((text) => portRange(text)!);
  for (const [index, asked] of (network?.ports ?? []).entries()) {
    const path = `network.ports[${index}]`;
    const { host_bind: bind, host_port: port } = withDefaults(asked);
    if (ranges.length === 0) refuse('network.ports', 'the operator lets no sandbox publish a port');
    if (isLocalhost(bind) && !publishedAddresses.includes(bind))
      refuse(
        `${path}.host_bind`,
        `browsers send the cookies of the console and of previews on localhost to every port of ${bind}: leave host_bind out to get ${DEFAULT_BIND}, or ask the operator to allow ${bind} with --published-addresses`,
      );
    if (!isLoopback(bind) && !publishedAddresses.includes(bind))
      refuse(
        `${path}.host_bind`,
        `the operator lets sandboxes publish ports on ${['loopback addresses such as 127.0.0.2', ...publishedAddresses].join(', ')} alone`,
      );
    if (port !== 0 && !ranges.some(({ start, end }) => start <= port && port <= end))
      refuse(
        `${path}.host_port`,
        `the operator lets sandboxes publish on the ports ${publishedPorts.join(', ')} alone: take one of them, or leave host_port out`,
      );
  }
}

/**
 * Chooses the ports of the host that a new sandbox gets, or refuses one that another has. The caller inserts them in
 * this transaction, which holds the lock until its end. So two creates never get the same one.
 */
export async function takePorts(
  { publishedPorts }: Allowed,
  tx: Sql,
  caller: Caller,
  { network }: WithPorts,
): Promise<PublishedPort[]> {
  const wanted = (network?.ports ?? []).map(withDefaults);
  if (wanted.length === 0) return [];
  await lockAdvisory(tx, ADVISORY_LOCKS.publishedPorts);
  const taken = new TakenPorts(tx);
  for (const [index, port] of wanted.entries()) {
    if (port.host_port === 0) continue;
    if ((await taken.at(port)).has(port.host_port)) await refusePort(tx, caller, port, index);
  }
  // The named ones first, so that none of them is chosen for another.
  const mine = wanted.filter(({ host_port }) => host_port !== 0);
  const numbers = numbersOf(publishedPorts);
  for (const port of wanted) {
    if (port.host_port !== 0) continue;
    const used = await taken.at(port);
    const own = new Set(mine.filter((other) => sharePorts(other, port)).map(({ host_port }) => host_port));
    const chosen = firstFree(numbers, (number) => used.has(number) || own.has(number));
    if (chosen === undefined)
      throw new ApiError(
        'port_taken',
        `sandboxes have all ports of ${port.host_bind} for ${port.protocol}: delete one that publishes a port, or try again later`,
        { protocol: port.protocol, host_bind: port.host_bind },
      );
    port.host_port = chosen;
    mine.push(port);
  }
  return wanted;
}

/** The request with the ports that its sandbox has. */
export function withPorts(
  request: CreateSandboxRequest,
  ports: readonly PublishedPort[],
): CreateSandboxRequest {
  return ports.length === 0 ? request : { ...request, network: { ...request.network, ports: [...ports] } };
}

/**
 * From a random place on: a port whose sandbox was just deleted may still be in use for a moment, on the machine and by
 * callers. Other creates wait meanwhile, so this does little for each number.
 */
function firstFree(numbers: readonly number[], isTaken: (number: number) => boolean): number | undefined {
  if (numbers.length === 0) return undefined;
  const start = randomInt(numbers.length);
  for (let step = 0; step < numbers.length; step += 1) {
    const number = numbers[(start + step) % numbers.length]!;
    if (!isTaken(number)) return number;
  }
  return undefined;
}

class TakenPorts {
  private readonly read = new Map<string, Set<number>>();

  constructor(private readonly tx: Sql) {}

  async at(port: PublishedPort): Promise<ReadonlySet<number>> {
    const key = `${port.protocol} ${port.host_bind}`;
    const known = this.read.get(key) ?? new Set(await takenHostPorts(this.tx, port));
    this.read.set(key, known);
    return known;
  }
}

function numbersOf(ranges: readonly string[]): number[] {
  const numbers = ranges.flatMap((text) => {
    const { start, end } = portRange(text)!;
    return Array.from({ length: end - start + 1 }, (_, index) => start + index);
  });
  return [...new Set(numbers)];
}

/** Names the sandbox that has it only to callers that may see that sandbox. */
async function refusePort(
  tx: Sql,
  { orgId, access }: Caller,
  port: PublishedPort,
  index: number,
): Promise<never> {
  const { protocol, host_bind, host_port } = port;
  const labels = isNarrowed(access) ? access.labels : {};
  const holder = await holderOf(tx, orgId, port, labels);
  const by = holder ? `the sandbox "${holder.name}" has` : 'another sandbox has';
  throw new ApiError(
    'port_taken',
    `${by} ${protocol} port ${host_port} of ${host_bind}: leave host_port out to get a free one, or take another`,
    {
      field: `network.ports[${index}].host_port`,
      protocol,
      host_bind,
      host_port,
      ...(holder ? { sandbox_id: holder.id, sandbox: holder.name } : {}),
    },
  );
}
