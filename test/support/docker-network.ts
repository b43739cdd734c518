import { expect } from 'vitest';
import type { GuardedGroup } from '../../src/network-policy/guarded-groups.js';
import { DockerRuntime } from '../../src/engines/docker/runtime.js';
import type { Client } from './client.js';
import { answers } from './tcp-answers.js';
import { docker, execIn, IMAGE, SOCKET } from './docker.js';
import { nft, sh } from './netns.js';
import { startTestService, type TestService } from './service.js';
import { until } from './polling.js';

/** An outside network for sandboxes: a namespace with routes of the machine to it, and functions that observe it. */

/** Test files that run at once each have a network of their own. */
const SLOT = Number(process.env['VITEST_POOL_ID'] ?? 1) % 100;
export const WORLD = `sk-world-${SLOT}`;
const LINK = WORLD;
/** Addresses in that namespace. The machine has routes to them while the test runs. */
export const PUBLIC = `45.12.${100 + SLOT}.56`;
export const PRIVATE = `10.202.${SLOT}.5`;
export const LINK_LOCAL = `169.254.${100 + SLOT}.7`;
/** All networks would have the same, so that of one file at a time has it. */
export const METADATA = '169.254.169.254';
/** The addresses of the machine and of that namespace on the link between them. */
export const NEAR = `10.201.${SLOT}.1`;
export const FAR = `10.201.${SLOT}.2`;
export const RESOLVER = `10.203.${SLOT}.53`;
export const FORBIDDEN = [PRIVATE, LINK_LOCAL, METADATA];

/**
 * Creates the network. It replaces the remains of a killed test run, whose routes lead nowhere. `hasMetadata`: for one
 * file only.
 */
export function makeWorld({ hasMetadata = true } = {}): void {
  removeWorld();
  const all = [PUBLIC, RESOLVER, ...FORBIDDEN];
  const addresses = all.filter((address) => hasMetadata || address !== METADATA);
  sh(`
    ip netns add ${WORLD}
    ip link add ${LINK} type veth peer name eth0 netns ${WORLD}
    ip addr add 10.201.${SLOT}.1/30 dev ${LINK}; ip link set ${LINK} up
  `);
  sh(
    `ip link set lo up; ip link set eth0 up; ip addr add 10.201.${SLOT}.2/30 dev eth0
     ip route add default via 10.201.${SLOT}.1
     ${addresses.map((address) => `ip addr add ${address}/32 dev lo`).join('\n')}`,
    WORLD,
  );
  sh(addresses.map((address) => `ip route replace ${address}/32 via 10.201.${SLOT}.2`).join('\n'));
  nft(
    WORLD,
    // A UDP server answers from its interface address. The kernel translates it for redirected packets.
    `table inet world {
      chain count {
        type filter hook prerouting priority mangle
        ip daddr { ${FORBIDDEN.join(', ')} } counter
      }
      chain names {
        type nat hook prerouting priority dstnat
        udp dport 53 redirect to :53
      }
    }`,
  );
}

export function removeWorld(): void {
  sh(`
    for link in $(ip -o -4 addr show to 10.201.${SLOT}.1 | cut -d ' ' -f 2); do ip link del "$link"; done
    ip netns del ${WORLD} 2>/dev/null || true
  `);
}

/** The number of packets to addresses that are forbidden without a policy. */
export function forbiddenPackets(): number {
  return Number(/counter packets (\d+)/.exec(sh('nft list table inet world', WORLD))![1]);
}

export async function holderOf(sandboxId: string) {
  return docker
    .getContainer(`sandkeep-net-${sandboxId}`)
    .inspect()
    .catch(() => undefined);
}

export async function networkOf(sandboxId: string) {
  return Object.values((await holderOf(sandboxId))!.NetworkSettings.Networks)[0];
}

export async function addressOf(sandboxId: string): Promise<string> {
  return (await networkOf(sandboxId))!.IPAddress;
}

export async function gatewayOf(sandboxId: string): Promise<string> {
  return (await networkOf(sandboxId))!.Gateway;
}

export async function pidOf(sandboxId: string): Promise<number> {
  return (await holderOf(sandboxId))!.State.Pid;
}

export function rulesIn(pid: number): string {
  return sh(`nsenter --net=/proc/${pid}/ns/net nft list tables`);
}

/** For connections that get no answer. A busy machine may answer later: `expectReached` waits longer. */
export async function reaches(
  sandboxId: string,
  address: string,
  port: number,
  seconds = 3,
): Promise<boolean> {
  const said = await execIn(sandboxId, 'busybox', 'nc', '-w', `${seconds}`, address, `${port}`);
  return said.includes('reached');
}

/** It connects once. */
export async function expectReached(sandboxId: string, address: string, port: number): Promise<void> {
  expect(await reaches(sandboxId, address, port, 60), `${address}:${port} answers`).toBe(true);
}

/** Waits for a program that may not listen yet, or an address that is not in use yet. */
export async function untilReached(sandboxId: string, address: string, port: number): Promise<void> {
  await until(
    () => reaches(sandboxId, address, port),
    (reached) => reached,
  );
}

export async function hostReaches(sandboxId: string, port: number): Promise<boolean> {
  return answers(await addressOf(sandboxId), port);
}

/** The bridge that a service made for its sandboxes. */
export async function bridgeOf({ ctx }: TestService): Promise<string> {
  const { rows } = await ctx.pool.query<{ id: string }>('select id from instance');
  return `sandkeep-${rows[0]!.id}`;
}

/** Networks of the engine whose names begin so, in the order of their names. */
export async function networksNamed(prefix: string): Promise<string[]> {
  const names = (await docker.listNetworks()).map(({ Name }) => Name);
  return names.filter((name) => name.startsWith(prefix)).toSorted();
}

/** Leaves a holder without a sandbox, as a kill during a start does. */
export async function leaveOrphan({ ctx }: TestService, sandboxId: string): Promise<void> {
  const { rows } = await ctx.pool.query<{ id: string }>('select id from instance');
  const orphan = await docker.createContainer({
    name: `sandkeep-net-${sandboxId}`,
    Image: IMAGE,
    Entrypoint: ['sleep', '600'],
    Labels: { 'dev.sandkeep.instance': rows[0]!.id, 'dev.sandkeep.holder-of': sandboxId },
    HostConfig: { NetworkMode: 'none' },
  });
  await orphan.start();
}

/** Starts a service on the engine whose sandboxes resolve names in the outside network. */
export async function startWith(
  {
    publishedAddresses = [],
    ...options
  }: {
    network?: string;
    allow?: readonly GuardedGroup[];
    bandwidthMbits?: number;
    sandboxesPerBridge?: number;
    preparedNetworks?: number;
    publishedAddresses?: readonly string[];
  },
  beforeConnecting: () => unknown = () => undefined,
): Promise<TestService> {
  return startTestService({
    runtime: async (instanceId, volumes, _pool, gateway) => {
      beforeConnecting();
      return DockerRuntime.connect(instanceId, {
        socketPath: SOCKET,
        resolvers: [RESOLVER],
        capacity: { vcpus: 100, memoryMib: 1_000_000 },
        volumes,
        gateway,
        ...options,
      });
    },
    settings: { stopGraceMs: 500, publishedAddresses },
  });
}

/** Deletes the sandboxes, closes the service, and checks that its bridges are removed. */
export async function end(service: TestService | undefined, client: Client | undefined): Promise<void> {
  if (!service || !client) return;
  for (const { id } of (await client.get('/v1/sandboxes', { limit: 100 })).body.data) {
    await client.delete(`/v1/sandboxes/${id}`);
  }
  await until(
    () => service.runtime.list(),
    (held) => held.length === 0,
    60_000,
  );
  const name = await bridgeOf(service);
  await service.close();
  expect(await networksNamed(name)).toEqual([]);
}
