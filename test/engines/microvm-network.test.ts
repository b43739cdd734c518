import { randomUUID } from 'node:crypto';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { hostRulesOf } from '../../src/engines/microvm/network/host-rules.js';
import {
  VmNetworks,
  type VmNetwork,
  type VmNetworkOptions,
} from '../../src/engines/microvm/network/vm-networks.js';
import type { ObservedFlow } from '../../src/engine/definition.js';
import type { Run } from '../../src/engine/runtime.js';
import type { Denial } from '../../src/gateway/protocol.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { describeNetns, NetnsPeer, sh } from '../support/netns.js';
import { until } from '../support/polling.js';
import { runSpecOf } from '../support/run-spec.js';
import {
  BEHIND,
  MACHINE,
  NEXT_PUBLIC,
  PUBLIC,
  RoutedWorld,
  WORLD_SETUP_MS,
} from '../support/routed-world.js';
import { NO_SERVICES, TapGuest } from '../support/tap-guest.js';

const OPEN = { networkPolicy: { default_egress: 'allow', default_ingress: 'allow' } } as const;

describeNetns('the networks of virtual machines', () => {
  let world: RoutedWorld;
  let directory: string;
  let options: VmNetworkOptions;
  let networks: VmNetworks;
  /** The ids of the sandboxes of a test. */
  const made: string[] = [];
  const guests: { guest: TapGuest; peer: NetnsPeer }[] = [];

  beforeAll(async () => {
    world = await RoutedWorld.start([80, 443]);
  }, WORLD_SETUP_MS);
  afterAll(async () => world?.close());

  beforeEach(async () => {
    directory = mkdtempSync(join(tmpdir(), 'sandkeep-networks-'));
    options = {
      instanceId: randomUUID(),
      directory,
      subnet: undefined,
      resolvers: ['9.9.9.9'],
      openableGroups: [],
      bandwidthMbits: 250,
      services: undefined,
    };
    networks = await VmNetworks.open(options);
    networks.takeOver({ valid: true });
  });
  afterEach(async () => {
    for (const { guest, peer } of guests.splice(0)) {
      await peer.stop();
      await guest.stop();
    }
    for (const id of made.splice(0)) await networks.finish(id);
    await networks.close();
    rmSync(directory, { recursive: true });
  });

  const runOf = (spec: Partial<RunSpec> = {}): Run => {
    const sandboxId = randomUUID();
    made.push(sandboxId);
    return {
      orgId: randomUUID(),
      sandboxId,
      runId: randomUUID(),
      name: 'one',
      spec: runSpecOf('none', spec),
      secrets: { registry: null, values: {} },
    };
  };

  async function joinGuest(network: VmNetwork): Promise<NetnsPeer> {
    const guest = await TapGuest.start(network.namespace, network.guest);
    const peer = await NetnsPeer.start(guest.name, [80]);
    guests.push({ guest, peer });
    return peer;
  }

  async function start(
    spec: Partial<RunSpec> = {},
  ): Promise<{ run: Run; network: VmNetwork; peer: NetnsPeer }> {
    const run = runOf(spec);
    const network = (await networks.make(run))!;
    return { run, network, peer: await joinGuest(network) };
  }

  const toPublic = { protocol: 'tcp', to: PUBLIC, port: 80, wait: 60_000 } as const;

  /** Everything of the installation in the network of the machine. */
  function traces(): string[] {
    const { links, table } = hostRulesOf(options.instanceId);
    const all = sh('ip -o link; ip route; nft list tables; iptables -S FORWARD 2>/dev/null || true');
    const subnet = readFileSync(join(directory, 'addresses'), 'utf8').trim();
    return all.split('\n').filter((line) => [links, table, subnet].some((name) => line.includes(name)));
  }

  test('lead to the internet by the address of the machine, beside the rules of Docker', async () => {
    const { network, peer } = await start();
    expect(await peer.try(toPublic)).toBe('reached');
    // The machine itself is closed, and so are other private addresses.
    expect(await peer.try({ ...toPublic, to: MACHINE })).toBe('refused');
    expect(await peer.try({ ...toPublic, to: network.guest.gateway })).toBe('refused');
    expect(await peer.try({ ...toPublic, to: BEHIND })).toBe('refused');
  });

  test('are closed to other machines, and open to the machine as the policy says', async () => {
    const { network } = await start();
    const { address } = network.guest;
    sh(`ip route add default via ${MACHINE}`, world.namespace);
    try {
      expect(await world.peer.try({ ...toPublic, from: PUBLIC, to: address, wait: 500 })).toBe('lost');
    } finally {
      sh('ip route del default', world.namespace);
    }
    const { stdout } = spawn('sh', ['-c', `exec busybox nc -w 60 ${address} 80`], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    expect(String((await once(stdout, 'data'))[0])).toBe('reached');
  });

  test('keep two sandboxes apart under every policy', async () => {
    const [one, other] = [await start(OPEN), await start(OPEN)];
    expect(one.network.guest.address).not.toBe(other.network.guest.address);
    expect(await other.peer.try({ ...toPublic, to: one.network.guest.address })).toBe('refused');
  });

  test('have the settings of the interface', async () => {
    await networks.close();
    networks = await VmNetworks.open({ ...options, subnet: '10.213.250.0/28' });
    expect(networks.capabilities).toContain('network_address');
    const wanted = { mac: '02:00:00:00:00:77', mtu: 1_280, ipv4: '10.213.250.9' };
    const { network, peer } = await start({ networkInterface: wanted });
    expect(network.guest).toMatchObject({ mac: wanted.mac, mtu: 1_280, address: wanted.ipv4 });
    expect(readFileSync(`/sys/class/net/${network.link}/mtu`, 'utf8')).toBe('1280\n');
    expect(await peer.try(toPublic)).toBe('reached');
    for (const ipv4 of ['10.213.250.9', '10.213.250.2', '10.213.250.15', '10.214.0.1'])
      await expect(networks.make(runOf({ networkInterface: { ...wanted, ipv4 } }))).rejects.toThrow(
        `cannot give out ${ipv4}`,
      );
    // Eleven are left: 3 to 14 without 9.
    for (let count = 0; count < 11; count += 1) await networks.make(runOf());
    await expect(networks.make(runOf())).rejects.toThrow('every address');
  });

  test('count the traffic, and report the connections of a recorded sandbox with their rules', async () => {
    await networks.close();
    const flows: ObservedFlow[] = [];
    const denials: Denial[] = [];
    const services = {
      ...NO_SERVICES,
      flows: (more: readonly ObservedFlow[]) => void flows.push(...more),
      denied: (one: Denial) => void denials.push(one),
    };
    networks = await VmNetworks.open({ ...options, services });
    expect(networks.capabilities).toContain('network_record');
    const networkPolicy = {
      rules: [{ direction: 'egress', destination: { cidr: PUBLIC }, action: 'allow' }],
    } as const satisfies RunSpec['networkPolicy'];
    const { run, peer } = await start({
      networkPolicy: { rules: [...networkPolicy.rules] },
      networkRecord: true,
    });
    expect(await peer.try(toPublic)).toBe('reached');
    expect(await peer.try({ ...toPublic, to: NEXT_PUBLIC })).toBe('refused');
    const { sentBytes, receivedBytes } = networks.traffic(run.sandboxId)!;
    expect([sentBytes > 100, receivedBytes > 100]).toEqual([true, true]);
    await networks.finish(run.sandboxId);
    // A reading may fall between two packets of the connection, so that it is reported twice.
    for (const flow of flows)
      expect(flow).toMatchObject({
        sandbox: run.sandboxId,
        address: PUBLIC,
        port: 80,
        protocol: 'tcp',
        rule: 0,
      });
    const sum = (of: (flow: ObservedFlow) => number) => flows.reduce((total, flow) => total + of(flow), 0);
    expect(sum(({ connections }) => connections)).toBe(1);
    expect(sum(({ sentBytes }) => sentBytes)).toBeGreaterThan(100);
    expect(denials).toMatchObject([{ address: NEXT_PUBLIC, port: 80, protocol: 'tcp' }]);
    expect(networks.traffic(run.sandboxId)).toBeUndefined();
  });

  test('outlive the process of the service with their rules, and are adopted by the next one', async () => {
    const run = runOf();
    const network = (await networks.make(run))!;
    // In the place of the supervisor: it has the namespace as descriptor 4.
    const keeper = spawn('cat', [], { stdio: ['pipe', 'ignore', 'inherit', 'ignore', network.namespace] });
    await networks.close();
    networks = await VmNetworks.open(options);
    await until(
      async () => Promise.resolve(readFileSync(`/sys/class/net/${network.link}/operstate`, 'utf8')),
      (state) => state === 'up\n',
    );
    networks.takeOver({ valid: true });
    const { orgId, sandboxId } = run;
    const path = `/proc/${keeper.pid}/fd/4`;
    await networks.note([{ orgId, sandboxId, link: network.link, path }], performance.now());
    expect(networks.traffic(run.sandboxId)).toBeDefined();
    await endOf(keeper);
    // The next sandbox has another address while that of the first is in use.
    const { network: second, peer } = await start();
    expect(second.link).not.toBe(network.link);
    expect(await peer.try(toPublic)).toBe('reached');
    await networks.note([], performance.now());
    await until(
      async () => traces().filter((line) => line.includes(` ${network.link}`)),
      (lines) => lines.length === 0,
    );
  });

  test('get their rules of the machine back within seconds after another program removed them', async () => {
    const { peer } = await start();
    const { table } = hostRulesOf(options.instanceId);
    sh(`nft delete table inet ${table}`);
    await until(
      async () => sh('nft list tables'),
      (tables) => tables.includes(table),
    );
    expect(await peer.try(toPublic)).toBe('reached');
  });

  test('leave nothing in the machine after the last sandbox and the service have ended', async () => {
    const { run, network } = await start();
    expect(traces().filter((line) => line.includes(network.link)).length).toBeGreaterThan(0);
    const { guest, peer } = guests.pop()!;
    await peer.stop();
    await guest.stop();
    await networks.finish(run.sandboxId);
    await networks.close();
    await until(
      async () => traces(),
      (lines) => lines.length === 0,
    );
  });
});

async function endOf(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit');
  child.stdin!.end();
  await ended;
}
