import fc from 'fast-check';
import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { closeSync, openSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parsePool } from '../../src/engines/microvm/network/address-pool.js';
import { applyHostRules, hostRulesOf } from '../../src/engines/microvm/network/host-rules.js';
import {
  guestHardwareAddress,
  makeNamespace,
  TAP,
} from '../../src/engines/microvm/network/sandbox-namespace.js';
import { compilePolicy } from '../../src/machine-network/compile-policy.js';
import { applyRules } from '../../src/machine-network/nftables.js';
import { behindLink } from '../../src/machine-network/position.js';
import type { GuardedGroup } from '../../src/network-policy/guarded-groups.js';
import { PUBLIC_PROFILE } from '../../src/network-policy/public-profile.js';
import type { NetworkPolicy, Rule } from '../../src/network-policy/schema.js';
import {
  openableGroups as guarded,
  packet,
  policy,
  PORTS,
  verdict,
  WHAT,
  type Packet,
} from '../support/docker-policy-oracle.js';
import { describeNetns, NetnsPeer, nft, sh } from '../support/netns.js';
import { until } from '../support/polling.js';
import { TapGuest } from '../support/tap-guest.js';

/** In the place of the machine. It has every address of the world, too. */
const MACHINE = `sk-machine-${randomUUID()}`;
const POOL = parsePool('10.200.0.0/24')!;
const RULES = hostRulesOf(randomUUID());
const SURROUNDINGS = {
  hosts: [POOL.machine, '45.45.45.45'],
  resolvers: ['9.9.9.9', '10.53.53.53'],
  neighbours: [POOL.subnet],
  openableGroups: [] as GuardedGroup[],
  bandwidthMbits: 250,
};
const OPEN: NetworkPolicy = { default_egress: 'allow', default_ingress: 'allow' };

interface Sandbox {
  address: string;
  link: string;
  mac: string;
  namespace: number;
  guest: TapGuest;
}

describeNetns('the rules of a virtual machine in the kernel', () => {
  let machine: number;
  let sandboxes: Sandbox[];
  let guest: NetnsPeer;
  let world: NetnsPeer;

  const start = async (number: number): Promise<Sandbox> => {
    const address = POOL.address(number)!;
    const link = `${RULES.links}${number}`;
    const { gateway, machine: host } = POOL;
    const settings = { name: link, mtu: 1_500, address, gateway, machine: host };
    const namespace = await makeNamespace(machine, settings, rulesOf(OPEN, address));
    const mac = guestHardwareAddress(address);
    return { address, link, mac, namespace, guest: await TapGuest.start(namespace, { ...settings, mac }) };
  };

  beforeAll(async () => {
    sh(`ip netns add ${MACHINE}`);
    machine = openSync(`/run/netns/${MACHINE}`, 'r');
    sh(
      `
      ip link set lo up
      ip route add local default dev lo table main
      echo 1 >/proc/sys/net/ipv4/ip_nonlocal_bind; echo 1 >/proc/sys/net/ipv4/ip_forward
    `,
      MACHINE,
    );
    await applyHostRules(machine, RULES, POOL.subnet);
    nft(
      MACHINE,
      `table inet world { chain answers {
        type nat hook prerouting priority dstnat
        iifname "${RULES.links}*" ip daddr != { ${POOL.address(0)!}, ${POOL.address(1)!} } meta l4proto { tcp, udp } redirect to :7
      }
      }`,
    );
    sandboxes = [await start(0), await start(1)];
    world = await NetnsPeer.start(MACHINE, [7]);
    guest = await NetnsPeer.start(sandboxes[0]!.guest.name, PORTS);
  });
  afterAll(async () => {
    await guest?.stop();
    await world?.stop();
    for (const sandbox of sandboxes ?? []) {
      await sandbox.guest.stop();
      closeSync(sandbox.namespace);
    }
    closeSync(machine);
    sh(`ip netns del ${MACHINE}`);
  });

  function rulesOf(
    tried: NetworkPolicy,
    address: string,
    openableGroups: readonly GuardedGroup[] = [],
  ): string {
    return compilePolicy(tried, { ...SURROUNDINGS, openableGroups }, { position: behindLink(TAP, address) });
  }

  async function load(tried: NetworkPolicy, openableGroups: readonly GuardedGroup[] = []): Promise<void> {
    const { namespace, address } = sandboxes[0]!;
    await applyRules(namespace, rulesOf(tried, address, openableGroups));
  }

  async function outcomeOf({ way, peer, protocol, port }: Packet, expected: Rule['action']): Promise<string> {
    // A dropped packet gets no answer, which takes the complete wait.
    const wait = expected === 'allow' || way === 'egress' ? 60_000 : 200;
    return way === 'egress'
      ? guest.try({ protocol, to: peer, port, wait })
      : world.try({ protocol, from: peer, to: sandboxes[0]!.address, port, wait });
  }

  async function expectVerdicts(
    tried: NetworkPolicy,
    packets: readonly Packet[],
    openableGroups: readonly GuardedGroup[] = [],
  ): Promise<void> {
    await load(tried, openableGroups);
    const seen = await Promise.all(
      packets.map(async (one) => {
        const expected = verdict(tried, one, openableGroups);
        return { one, expected, outcome: await outcomeOf(one, expected) };
      }),
    );
    for (const { one, expected, outcome } of seen) {
      const denied = one.way === 'egress' ? 'refused' : 'lost';
      expect(outcome, JSON.stringify(one)).toBe(expected === 'allow' ? 'reached' : denied);
    }
  }

  /** It has IPv4 alone. */
  const reachable = Object.keys(WHAT).filter((peer) => !peer.includes(':'));
  const isPossible = ({ way, peer }: Packet) =>
    reachable.includes(peer) && (way === 'egress' || !WHAT[peer]!.includes('neighbour'));
  const everything = (way: Packet['way'], port: number): Packet[] =>
    reachable
      .flatMap((peer) => (['tcp', 'udp'] as const).map((protocol) => ({ way, peer, protocol, port })))
      .filter(isPossible);

  test('let the public profile reach public addresses and the resolvers, and accept connections from outside', async () => {
    for (const port of [53, 443]) await expectVerdicts(PUBLIC_PROFILE, everything('egress', port));
    await expectVerdicts(PUBLIC_PROFILE, everything('ingress', 80));
  });

  test('give the verdict of the policy for any rules and packets', async () => {
    const packets = fc.array(packet.filter(isPossible), { minLength: 20, maxLength: 40 });
    await fc.assert(fc.asyncProperty(policy, packets, guarded, expectVerdicts), {
      numRuns: 30,
      endOnFailure: true,
    });
  });

  test('bound the connections of a sandbox by carrier', async () => {
    const { namespace, address } = sandboxes[0]!;
    const own = { limits: { tcp: null, udp: 2 }, position: behindLink(TAP, address) };
    await applyRules(namespace, compilePolicy(PUBLIC_PROFILE, SURROUNDINGS, own));
    const one = { way: 'egress', peer: '8.8.8.8', port: 443 } as const;
    const outcomes: string[] = [];
    for (let tried = 0; tried < 4; tried += 1)
      outcomes.push(await outcomeOf({ ...one, protocol: 'udp' }, 'allow'));
    expect(outcomes).toEqual(['reached', 'reached', 'refused', 'refused']);
    expect(await outcomeOf({ ...one, protocol: 'tcp' }, 'allow')).toBe('reached');
  });

  test('pass pings by the rules for their protocol', async () => {
    const ping = (seconds: number) => {
      try {
        sh(`busybox ping -c 1 -W ${seconds} 8.8.8.8`, sandboxes[0]!.guest.name);
        return true;
      } catch {
        return false;
      }
    };
    const allow = (protocol: 'tcp' | 'icmpv4'): NetworkPolicy => ({
      rules: [{ direction: 'any', destination: 'any', protocols: [protocol], action: 'allow' }],
    });
    await load(allow('tcp'));
    expect(ping(1)).toBe(false);
    await load(allow('icmpv4'));
    expect(ping(60)).toBe(true);
  });

  test('keep neighbours apart under every policy, also where the rules of one of them are gone', async () => {
    await load(OPEN);
    const [first, second] = sandboxes as [Sandbox, Sandbox];
    const attempt = { protocol: 'tcp', to: first.address, port: 80, wait: 500 } as const;
    const patient = { ...attempt, wait: 60_000 };
    const neighbour = await NetnsPeer.start(second.guest.name, []);
    try {
      expect(await world.try(patient)).toBe('reached');
      expect(await neighbour.try(patient)).toBe('refused');
      await applyRules(second.namespace, 'flush ruleset');
      expect(await neighbour.try(attempt)).toBe('lost');
      expect(await neighbour.try({ ...patient, to: '8.8.8.8' })).toBe('reached');
      await applyRules(first.namespace, 'flush ruleset');
      expect(await neighbour.try(attempt)).toBe('lost');
    } finally {
      await neighbour.stop();
      for (const { namespace, address } of sandboxes) await applyRules(namespace, rulesOf(OPEN, address));
    }
  });

  test('let only IPv4 packets from its own address out of a hostile kernel', async () => {
    const { link, mac, address, namespace } = sandboxes[0]!;
    await load(OPEN, ['host', 'metadata']);
    nft(
      MACHINE,
      `table netdev seen { chain frames {
        type filter hook ingress device "${link}" priority 0
        ip saddr ${address} counter accept
        counter
      }
      }`,
    );
    /** The packets from its own address, and all others. */
    const seen = () =>
      [...sh('nft list table netdev seen', MACHINE).matchAll(/counter packets (\d+)/g)].map(([, n]) =>
        Number(n),
      );
    const own = bytesOf(mac);
    const gateway = bytesOf(
      /link\/ether (\S+)/.exec(inNamespace(namespace, ['ip', 'link', 'show', TAP]))![1]!,
    );
    await sandboxes[0]!.guest.send([ipv4Frame(gateway, own, address, '8.8.8.8')]);
    await until(
      async () => Promise.resolve(seen()[0]!),
      (count) => count > 0,
    );
    const everybody = Buffer.alloc(6, 0xff);
    const broken = fc.uint8Array({ minLength: 0, maxLength: 200 });
    const kind = fc.constantFrom(0x0800, 0x0806, 0x86dd, 0x8100, 0x88a8, 0x8847, 0x888e, 0x88cc, 0x0003);
    const frame = fc
      .tuple(fc.boolean(), fc.boolean(), kind, broken)
      .map(([toAll, isOwn, type, rest]) =>
        Buffer.concat([toAll ? everybody : gateway, isOwn ? own : Buffer.alloc(6, 2), word(type), rest]),
      );
    const forged = [
      ...['10.200.0.9', POOL.machine, POOL.gateway, sandboxes[1]!.address, '8.8.8.8', '127.0.0.1'].map(
        (from) => ipv4Frame(gateway, own, from, '8.8.8.8'),
      ),
      // Claims the addresses of the machine, of the namespace and of the neighbour.
      ...[POOL.machine, POOL.gateway, sandboxes[1]!.address].flatMap((from) =>
        [1, 2].map((operation) => arpFrame(own, from, operation)),
      ),
      routerAdvertisement(own),
      neighbourAdvertisement(own),
    ];
    // Without the states, which the kernel changes as time passes.
    const neighbours = () => sh('ip neigh', MACHINE).replaceAll(/ [A-Z]+ *$/gm, '');
    const before = neighbours();
    await fc.assert(
      fc.asyncProperty(fc.array(frame, { minLength: 50, maxLength: 100 }), async (frames) => {
        await sandboxes[0]!.guest.send([...forged, ...frames]);
        expect(seen()[1]).toBe(0);
      }),
      { numRuns: 20, endOnFailure: true },
    );
    expect(neighbours()).toBe(before);
    // It is still joined, and so is its neighbour.
    expect(await guest.try({ protocol: 'tcp', to: '8.8.8.8', port: 443, wait: 60_000 })).toBe('reached');
    sh('nft delete table netdev seen', MACHINE);
  });
});

/** The output of a program in a namespace, an open descriptor. */
function inNamespace(namespace: number, command: readonly string[]): string {
  return execFileSync('nsenter', ['--net=/proc/self/fd/3', ...command], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit', namespace],
  });
}

function word(value: number): Buffer {
  return Buffer.from([value >> 8, value & 0xff]);
}

function bytesOf(text: string): Buffer {
  return text.includes(':')
    ? Buffer.from(text.replaceAll(':', ''), 'hex')
    : Buffer.from(text.split('.').map(Number));
}

/** The checksum of the internet protocols, over an even number of bytes. */
function checksum(bytes: Buffer): Buffer {
  let sum = 0;
  for (let at = 0; at < bytes.length; at += 2) sum += bytes.readUInt16BE(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return word(~sum & 0xffff);
}

/** A UDP packet. */
function ipv4Frame(to: Buffer, from: Buffer, source: string, destination: string): Buffer {
  const udp = Buffer.concat([word(4_000), word(7), word(9), word(0), Buffer.from('x')]);
  const head = Buffer.from([0x45, 0, 0, 20 + udp.length, 0, 1, 0, 0, 64, 17, 0, 0]);
  const header = Buffer.concat([head, bytesOf(source), bytesOf(destination)]);
  checksum(header).copy(header, 10);
  return Buffer.concat([to, from, word(0x0800), header, udp]);
}

function arpFrame(mac: Buffer, address: string, operation: number): Buffer {
  const start = Buffer.from([0, 1, 8, 0, 6, 4, 0, operation]);
  const claim = Buffer.concat([mac, bytesOf(address), Buffer.alloc(6, 0xff), bytesOf(address)]);
  return Buffer.concat([Buffer.alloc(6, 0xff), mac, word(0x0806), start, claim]);
}

function icmpv6Frame(mac: Buffer, destination: Buffer, body: Buffer): Buffer {
  const source = Buffer.from('fe80000000000000025afffe00000001', 'hex');
  const pseudo = Buffer.concat([
    source,
    destination,
    Buffer.from([0, 0]),
    word(body.length),
    Buffer.from([0, 0, 0, 58]),
  ]);
  checksum(Buffer.concat([pseudo, body])).copy(body, 2);
  const header = Buffer.concat([Buffer.from([0x60, 0, 0, 0]), word(body.length), Buffer.from([58, 255])]);
  return Buffer.concat([
    Buffer.from('333300000001', 'hex'),
    mac,
    word(0x86dd),
    header,
    source,
    destination,
    body,
  ]);
}

const ALL_NODES = Buffer.from('ff020000000000000000000000000001', 'hex');

/** Offers itself as the router of all. */
function routerAdvertisement(mac: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from([134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]), mac]);
  return icmpv6Frame(mac, ALL_NODES, body);
}

function neighbourAdvertisement(mac: Buffer): Buffer {
  const body = Buffer.concat([
    Buffer.from([136, 0, 0, 0, 0xa0, 0, 0, 0]),
    ALL_NODES,
    Buffer.from([2, 1]),
    mac,
  ]);
  return icmpv6Frame(mac, ALL_NODES, body);
}
