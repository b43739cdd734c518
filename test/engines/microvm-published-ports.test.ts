import { spawn, type ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Run } from '../../src/engine/runtime.js';
import { hostRulesOf } from '../../src/engines/microvm/network/host-rules.js';
import {
  VmNetworks,
  type VmNetwork,
  type VmNetworkOptions,
} from '../../src/engines/microvm/network/vm-networks.js';
import type { PublishedPort } from '../../src/spec/network-schema.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { describeNetns, NetnsPeer, sh } from '../support/netns.js';
import { until } from '../support/polling.js';
import { BEHIND, MACHINE, PUBLIC, RoutedWorld, WORLD_SETUP_MS } from '../support/routed-world.js';
import { runSpecOf } from '../support/run-spec.js';
import { TapGuest } from '../support/tap-guest.js';
import { answers, expectAnswers } from '../support/tcp-answers.js';

const LOOPBACK = '127.0.0.2';
const OPEN = { networkPolicy: { default_egress: 'allow', default_ingress: 'allow' } } as const;

describeNetns('published ports of virtual machines', () => {
  let world: RoutedWorld;
  let directory: string;
  let options: VmNetworkOptions;
  let networks: VmNetworks;
  const guests: { guest: TapGuest; peer: NetnsPeer }[] = [];
  const made: string[] = [];

  beforeAll(async () => {
    world = await RoutedWorld.start([80]);
  }, WORLD_SETUP_MS);
  afterAll(async () => world?.close());
  beforeEach(async () => {
    directory = mkdtempSync(join(tmpdir(), 'sandkeep-networks-'));
    options = {
      instanceId: randomUUID(),
      directory,
      subnet: undefined,
      resolvers: ['9.9.9.9'],
      // The least protected installation: policies may open the machine.
      openableGroups: ['host'],
      bandwidthMbits: 250,
      services: undefined,
    };
    networks = await VmNetworks.open(options);
    networks.takeOver({ valid: true });
  });
  afterEach(async () => {
    for (const each of guests.splice(0)) await leave(each);
    for (const id of made.splice(0)) await networks.finish(id);
    await networks.close();
    rmSync(directory, { recursive: true });
  });

  async function leave({ guest, peer }: (typeof guests)[number]): Promise<void> {
    await peer.stop();
    await guest.stop();
  }
  const runOf = (spec: Partial<RunSpec>, sandboxId: string = randomUUID()): Run => {
    made.push(sandboxId);
    const secrets = { registry: null, values: {} };
    const common = { orgId: randomUUID(), sandboxId, runId: randomUUID(), name: 'one', secrets };
    return { ...common, spec: runSpecOf('none', spec) };
  };
  /** A guest that answers on port 80 with "reached". */
  async function start(run: Run): Promise<{ network: VmNetwork; peer: NetnsPeer }> {
    const network = (await networks.make(run))!;
    const guest = await TapGuest.start(network.namespace, network.guest);
    const peer = await NetnsPeer.start(guest.name, [80]);
    guests.push({ guest, peer });
    return { network, peer };
  }
  const published = (host_port: number, more: Partial<PublishedPort> = {}): PublishedPort => ({
    guest_port: 80,
    host_port,
    host_bind: LOOPBACK,
    protocol: 'tcp',
    ...more,
  });
  const outside = async (to: string, port: number, from?: string): Promise<string> =>
    world.peer.try({ protocol: 'tcp', to, port, wait: 1_000, ...(from === undefined ? {} : { from }) });

  test('on loopback addresses are reached by the machine alone', async () => {
    expect(networks.capabilities).toContain('published_ports');
    const { network } = await start(runOf({ ports: [published(31_001)] }));
    await expectAnswers(LOOPBACK, 31_001);
    expect(await answers('127.0.0.1', 31_001)).toBe(false);
    const neighbour = await start(runOf(OPEN));
    for (const to of [LOOPBACK, MACHINE, network.guest.address, network.guest.gateway])
      for (const port of [31_001, 80]) {
        const attempt = { protocol: 'tcp', to, port, wait: 1_000 } as const;
        // It listens on port 80 of its own loopback addresses.
        if (to === LOOPBACK && port === 80) continue;
        expect(await neighbour.peer.try(attempt), `${to}:${port}`).not.toBe('reached');
      }
    expect(await outside(MACHINE, 31_001)).not.toBe('reached');
    // Another machine of the link sends to the loopback address of this one.
    sh(
      `echo 1 >/proc/sys/net/ipv4/conf/eth0/route_localnet
       ip route del local 127.0.0.0/8 dev lo table local; ip route add ${LOOPBACK} via ${MACHINE}`,
      world.namespace,
    );
    try {
      expect(await outside(LOOPBACK, 31_001, BEHIND)).not.toBe('reached');
    } finally {
      sh(
        `ip route del ${LOOPBACK}; ip route add local 127.0.0.0/8 dev lo table local src 127.0.0.1`,
        world.namespace,
      );
    }
  });

  test('on other addresses are reached by the sources that the policy allows', async () => {
    const from = (cidr: string): Partial<RunSpec> => ({
      networkPolicy: { rules: [{ direction: 'ingress', destination: { cidr }, action: 'allow' }] },
    });
    await start(runOf({ ...from(`${BEHIND}/32`), ports: [published(31_002, { host_bind: MACHINE })] }));
    await start(runOf({ ...from(`${PUBLIC}/32`), ports: [published(31_003, { host_bind: '0.0.0.0' })] }));
    await until(
      async () => outside(MACHINE, 31_002, BEHIND),
      (outcome) => outcome === 'reached',
    );
    expect(await outside(MACHINE, 31_002, PUBLIC)).not.toBe('reached');
    await until(
      async () => outside(MACHINE, 31_003, PUBLIC),
      (outcome) => outcome === 'reached',
    );
    expect(await outside(MACHINE, 31_003, BEHIND)).not.toBe('reached');
    // The machine itself is no allowed source.
    for (const [address, port] of [
      [MACHINE, 31_002],
      [LOOPBACK, 31_003],
    ] as const)
      expect(await answers(address, port)).toBe(false);
  });

  test('carry UDP, also of a client that sends on while the sandbox starts again', async () => {
    const ports = [published(31_004, { protocol: 'udp' })];
    const run = runOf({ ports });
    await start(run);
    const socket = createSocket('udp4').on('error', () => undefined);
    let count = 0;
    socket.on('message', () => (count += 1));
    const asking = setInterval(() => socket.send('?', 31_004, LOOPBACK), 50);
    const answered = async (after: number): Promise<unknown> =>
      until(
        async () => count,
        (now) => now > after,
      );
    try {
      await answered(0);
      await leave(guests.pop()!);
      await networks.finish(run.sandboxId);
      await start(run);
      const before = count;
      await answered(before);
      expect(count).toBeGreaterThan(before);
    } finally {
      clearInterval(asking);
      socket.close();
    }
  });

  test('fail the start with the reason while another program has one', async () => {
    const program = createServer();
    program.listen(31_005, LOOPBACK);
    await once(program, 'listening');
    const run = runOf({ ports: [published(31_005)] });
    await expect(networks.make(run)).rejects.toThrow(
      `another program of the machine has the port ${LOOPBACK}:31005 of network.ports`,
    );
    program.close();
    await once(program, 'close');
    await start(run);
    await expectAnswers(LOOPBACK, 31_005);
    const away = runOf({ ports: [published(31_006, { host_bind: '45.14.250.77' })] });
    await expect(networks.make(away)).rejects.toThrow('does not have an address of network.ports');
    const ipv6 = runOf({ ports: [published(31_006, { host_bind: '::1' })] });
    await expect(networks.make(ipv6)).rejects.toThrow('no port on an IPv6 address');
  });

  test('stay open without the service, are adopted by the next one, and close with the sandbox', async () => {
    const run = runOf({ ports: [published(31_007)] });
    const { network } = await start(run);
    await expectAnswers(LOOPBACK, 31_007);
    const keeper = spawn('cat', [], { stdio: ['pipe', 'ignore', 'inherit', 'ignore', network.namespace] });
    await networks.close();
    await expectAnswers(LOOPBACK, 31_007);
    networks = await VmNetworks.open(options);
    networks.takeOver({ valid: true });
    const { orgId, sandboxId } = run;
    const path = `/proc/${keeper.pid}/fd/4`;
    const adopted = { orgId, sandboxId, link: network.link, path, ports: network.ports };
    await networks.note([adopted], performance.now());
    // The rules of the machine are written again.
    await start(runOf({}));
    await expectAnswers(LOOPBACK, 31_007);
    await endOf(keeper);
    await networks.note([], performance.now());
    expect(await answers(LOOPBACK, 31_007)).toBe(false);
    expect(sh(`nft list table inet ${hostRulesOf(options.instanceId).table}`)).not.toContain('31007');
  });
});

async function endOf(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit');
  child.stdin!.end();
  await ended;
}
