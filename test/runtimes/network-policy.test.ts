import fc from 'fast-check';
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { BANDWIDTH } from '../../src/runtimes/docker/network/bandwidth.js';
import {
  blocksEverything,
  compilePolicy,
  FLOWS,
  type GuardedGroup,
} from '../../src/runtimes/docker/network/compile-policy.js';
import { PUBLIC_PROFILE } from '../../src/runtimes/docker/network/public-profile.js';
import type { NetworkPolicy } from '../../src/sandboxes/spec/network-schema.js';
import { describeNetns, NetnsPeer, nft, sh, type Attempt } from '../support/netns.js';

type Rule = NonNullable<NetworkPolicy['rules']>[number];
type Group = 'public' | 'private' | 'link_local' | 'metadata' | 'host' | 'resolver' | 'neighbour';

const GUEST = `sk-guest-${randomUUID()}`;
const WORLD = `sk-world-${randomUUID()}`;
const GUEST_V4 = '10.200.0.2';
const GUEST_V6 = 'fd00:200::2';
const PORTS = [53, 80, 443, 5000, 8080];

/** The addresses of the peers, and their groups by hand. Those of `neighbour` are only targets. */
const WHAT: Record<string, Group[]> = {
  '8.8.8.8': ['public'],
  '9.255.255.255': ['public'],
  '11.0.0.1': ['public'],
  '100.63.255.255': ['public'],
  '100.128.0.1': ['public'],
  '126.255.255.254': ['public'],
  '128.0.0.1': ['public'],
  '169.253.255.255': ['public'],
  '169.255.0.1': ['public'],
  '172.15.255.255': ['public'],
  '172.32.0.1': ['public'],
  '192.0.1.1': ['public'],
  '192.167.255.255': ['public'],
  '198.17.255.255': ['public'],
  '198.20.0.1': ['public'],
  '203.0.114.1': ['public'],
  '223.255.255.254': ['public'],
  '10.0.0.1': ['private'],
  '10.255.255.254': ['private'],
  '172.16.0.1': ['private'],
  '172.31.255.254': ['private'],
  '192.168.0.1': ['private'],
  '100.64.0.1': ['private'],
  '100.127.255.254': ['private'],
  '169.254.1.1': ['link_local'],
  '169.254.169.254': ['metadata'],
  '169.254.170.2': ['metadata'],
  '168.63.129.16': ['metadata'],
  '100.100.100.200': ['metadata'],
  '192.0.0.8': [],
  '192.0.2.1': [],
  '192.88.99.1': [],
  '198.18.0.1': [],
  '198.19.255.254': [],
  '198.51.100.5': [],
  '203.0.113.9': [],
  '240.0.0.1': [],
  '10.200.0.1': ['host'],
  '45.45.45.45': ['host'],
  '9.9.9.9': ['resolver', 'public'],
  '10.53.53.53': ['resolver', 'private'],
  '10.200.0.77': ['neighbour'],
  '2606:4700::1111': ['public'],
  '2400:cb00::1': ['public'],
  '2000::1': ['public'],
  '3ffe:ffff::1': ['public'],
  'fd12:3456::1': ['private'],
  'fc00::1': ['private'],
  'fd00:ec2::254': ['metadata'],
  'fd20:ce::254': ['metadata'],
  '64:ff9b::a00:1': [],
  '64:ff9b:1::1': [],
  '100::1': [],
  '2001::1': [],
  '2001:db8::1': [],
  '2002:a00:1::1': [],
  '3fff::1': [],
  '4000::1': [],
  '5f00::1': [],
  '8000::1': [],
  'fd00:200::1': ['host'],
  '2a00:45::45': ['host'],
  '2620:fe::fe': ['resolver', 'public'],
  'fd53::53': ['resolver', 'private'],
  'fd00:200::77': ['neighbour'],
};
const SURROUNDINGS = {
  hosts: ['10.200.0.1', '45.45.45.45', 'fd00:200::1', '2a00:45::45'],
  resolvers: ['9.9.9.9', '10.53.53.53', '2620:fe::fe', 'fd53::53'],
  neighbours: ['10.200.0.2/24', 'fd00:200::2/64'],
  openableGroups: [] as GuardedGroup[],
  bandwidthMbits: 250,
};

interface Packet {
  way: 'egress' | 'ingress';
  peer: string;
  protocol: 'tcp' | 'udp';
  port: number;
}

/** The verdict of a policy on a packet: a walk along its rules that shares nothing with the compiler. */
function verdict(
  { default_egress, default_ingress, rules = [] }: NetworkPolicy,
  packet: Packet,
  openableGroups: readonly GuardedGroup[],
): Rule['action'] {
  const groups = WHAT[packet.peer]!;
  if (groups.includes('neighbour')) return 'deny';
  const closed = (['host', 'metadata'] as const).some(
    (one) => groups.includes(one) && !openableGroups.includes(one),
  );
  const asksHost = packet.port === 53 && groups.includes('host');
  if (packet.way === 'egress' && closed && !asksHost) return 'deny';
  const fallback = packet.way === 'egress' ? default_egress : default_ingress;
  return rules.find((rule) => isAboutResource(rule, packet))?.action ?? fallback ?? 'deny';
}

function isAboutResource(
  { direction, destination, protocols = [], ports = [] }: Rule,
  packet: Packet,
): boolean {
  const { way, peer, protocol, port } = packet;
  if (direction !== 'any' && direction !== way) return false;
  if (protocols.length > 0 && !protocols.includes(protocol)) return false;
  if (ports.length > 0 && !ports.some(({ start, end }) => start <= port && port <= end)) return false;
  if (typeof destination === 'string') return true;
  if ('cidr' in destination) return contains(destination.cidr, peer);
  if (!('group' in destination)) throw new Error('not asked here');
  const groups = WHAT[peer]!;
  const asksResolver = way === 'egress' && port === 53 && groups.includes('resolver');
  if (destination.group === 'host') return asksResolver || groups.includes('host');
  if (destination.group === 'public') return groups.includes('public');
  return !asksResolver && (groups as string[]).includes(destination.group);
}

function contains(cidr: string, address: string): boolean {
  const [base, prefix] = cidr.split('/');
  if (base!.includes(':') !== address.includes(':')) return false;
  const bits = address.includes(':') ? 128n : 32n;
  const shift = bits - BigInt(prefix ?? bits);
  return numberOf(base!) >> shift === numberOf(address) >> shift;
}

function numberOf(address: string): bigint {
  if (!address.includes(':')) return address.split('.').reduce((sum, part) => sum * 256n + BigInt(part), 0n);
  const [head, tail = ''] = address.split('::');
  const left = head!.split(':').filter(Boolean);
  const right = tail.split(':').filter(Boolean);
  const parts = [...left, ...Array.from({ length: 8 - left.length - right.length }, () => '0'), ...right];
  return parts.reduce((sum, part) => sum * 65_536n + BigInt(`0x${part}`), 0n);
}

const address = fc.constantFrom(...Object.keys(WHAT));
const cidr = fc
  .tuple(address, fc.option(fc.nat(128), { nil: undefined }))
  .map(([base, prefix]) =>
    prefix === undefined ? base : `${base}/${base.includes(':') ? prefix : Math.floor(prefix / 4)}`,
  );
const range = fc
  .tuple(fc.constantFrom(0, 1, ...PORTS, 65_535), fc.constantFrom(...PORTS, 65_535))
  .map(([a, b]) => ({ start: Math.min(a, b), end: Math.max(a, b) }));
const rule: fc.Arbitrary<Rule> = fc
  .record({
    direction: fc.constantFrom('egress', 'ingress', 'any'),
    destination: fc.oneof(
      fc.constant('any' as const),
      fc.record({ cidr }),
      fc.record({
        group: fc.constantFrom(
          'public',
          'private',
          'link_local',
          'metadata',
          'host',
          'loopback',
          'multicast',
        ),
      }),
    ),
    action: fc.constantFrom('allow', 'deny'),
    protocols: fc.array(fc.constantFrom('tcp', 'udp', 'icmpv4', 'icmpv6'), { maxLength: 2 }),
    ports: fc.array(range, { maxLength: 2 }),
  })
  .map((made) => ({
    ...made,
    // Admission refuses ports together with protocols that have none.
    ports: made.protocols.some((protocol) => protocol.startsWith('icmp')) ? [] : made.ports,
  })) as fc.Arbitrary<Rule>;
const action = fc.constantFrom('allow' as const, 'deny' as const);
const policy: fc.Arbitrary<NetworkPolicy> = fc.record({
  default_egress: action,
  default_ingress: action,
  rules: fc.array(rule, { maxLength: 8 }),
});
const openableGroups = fc.subarray<GuardedGroup>(['host', 'metadata']);
const packet: fc.Arbitrary<Packet> = fc.record({
  way: fc.constantFrom('egress', 'ingress'),
  peer: address,
  protocol: fc.constantFrom('tcp', 'udp'),
  port: fc.constantFrom(...PORTS),
});

test('a policy without any allowance blocks everything', () => {
  expect(blocksEverything({})).toBe(true);
  expect(blocksEverything({ default_egress: 'deny', default_ingress: 'deny', rules: [] })).toBe(true);
  const denial: Rule = { direction: 'any', destination: 'any', action: 'deny' };
  expect(blocksEverything({ rules: [denial] })).toBe(true);
  expect(blocksEverything({ default_ingress: 'allow' })).toBe(false);
  expect(blocksEverything({ rules: [{ ...denial, action: 'allow' }] })).toBe(false);
});

describeNetns('the rules in the kernel', () => {
  let guest: NetnsPeer;
  let world: NetnsPeer;

  beforeAll(async () => {
    sh(`
      ip netns add ${GUEST}; ip netns add ${WORLD}
      ip link add eth0 netns ${GUEST} type veth peer name eth0 netns ${WORLD}
    `);
    sh(
      `
      ip link set lo up; ip link set eth0 up
      ip addr add ${GUEST_V4}/24 dev eth0; ip addr add ${GUEST_V6}/64 dev eth0 nodad
      ip route add default via 10.200.0.1; ip route add default via fd00:200::1
    `,
      GUEST,
    );
    // The peer has every address, and answers on one port for all of them.
    sh(
      `
      ip link set lo up; ip link set eth0 up
      ip addr add 10.200.0.1/24 dev eth0; ip addr add fd00:200::1/64 dev eth0 nodad
      ip route add local default dev lo table main; ip -6 route add local default dev lo table main
      echo 1 >/proc/sys/net/ipv4/ip_nonlocal_bind; echo 1 >/proc/sys/net/ipv6/ip_nonlocal_bind
    `,
      WORLD,
    );
    nft(
      WORLD,
      `table inet world { chain answers {
        type nat hook prerouting priority dstnat
        iifname "eth0" meta l4proto { tcp, udp } redirect to :7
      }
      }`,
    );
    world = await NetnsPeer.start(WORLD, [7]);
    guest = await NetnsPeer.start(GUEST, PORTS);
  });
  afterAll(async () => {
    await guest?.stop();
    await world?.stop();
    sh(`ip netns del ${GUEST}; ip netns del ${WORLD}`);
  });

  async function outcomeOf({ way, peer, protocol, port }: Packet, expected: Rule['action']): Promise<string> {
    // A dropped packet gets no answer, which takes the complete wait.
    const wait = expected === 'allow' || way === 'egress' ? 5_000 : 200;
    const attempt: Attempt =
      way === 'egress'
        ? { protocol, to: peer, port, wait }
        : { protocol, from: peer, to: peer.includes(':') ? GUEST_V6 : GUEST_V4, port, wait };
    return (way === 'egress' ? guest : world).try(attempt);
  }

  async function expectVerdicts(
    tried: NetworkPolicy,
    packets: readonly Packet[],
    openableGroups: readonly GuardedGroup[] = [],
  ): Promise<void> {
    nft(GUEST, compilePolicy(tried, { ...SURROUNDINGS, openableGroups }));
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

  const everything = (way: Packet['way'], port: number): Packet[] =>
    Object.keys(WHAT)
      // The peer neither answers for neighbours nor sends as one.
      .filter((peer) => way === 'egress' || !WHAT[peer]!.includes('neighbour'))
      .flatMap((peer) => (['tcp', 'udp'] as const).map((protocol) => ({ way, peer, protocol, port })));

  test('let the public profile reach public addresses and the resolvers, and accept connections from outside', async () => {
    for (const port of [53, 443]) await expectVerdicts(PUBLIC_PROFILE, everything('egress', port));
    await expectVerdicts(PUBLIC_PROFILE, everything('ingress', 80));
  });

  test('bound the connections that a sandbox keeps in the table of the machine, open and closed', () => {
    nft(GUEST, compilePolicy(PUBLIC_PROFILE, { ...SURROUNDINGS, openableGroups: [] }));
    const inGuest = (script: string) => JSON.parse(sh(`exec ${process.execPath} -e '${script}'`, GUEST));
    const tracked = () => Number(sh('cat /proc/sys/net/netfilter/nf_conntrack_count', WORLD));
    const connections = FLOWS.open + 1_200;
    const begun = performance.now();
    const { reached } = inGuest(`
      const { connect } = require("node:net");
      let reached = 0;
      const one = () => new Promise((done) => {
        const socket = connect(443, "8.8.8.8", () => { reached += 1; socket.resetAndDestroy(); });
        socket.on("error", () => undefined).on("close", done);
      });
      (async () => {
        for (let tried = 0; tried < ${connections}; tried += 100) await Promise.all(Array.from({ length: 100 }, one));
        console.log(JSON.stringify({ reached }));
      })();
    `);
    const seconds = (performance.now() - begun) / 1_000;
    expect(reached).toBeGreaterThan(FLOWS.open / 2);
    expect(reached).toBeLessThanOrEqual(FLOWS.open + FLOWS.tcpPerSecond * (seconds + 1));
    const before = tracked();
    inGuest(`
      const socket = require("node:dgram").createSocket("udp4");
      let sent = 0;
      const next = () => {
        if (sent === ${connections}) return socket.close(() => console.log(sent));
        sent += 1;
        socket.send("x", 1_024 + sent, "8.8.8.8", next);
      };
      socket.on("error", () => undefined);
      next();
    `);
    const added = tracked() - before;
    expect(added).toBeGreaterThan(FLOWS.open / 2);
    expect(added).toBeLessThanOrEqual(FLOWS.open);
  });

  test.each([1, 100_000])('are accepted by the kernel with a bandwidth of %d Mbit/s', (bandwidthMbits) => {
    const rules = compilePolicy(PUBLIC_PROFILE, { ...SURROUNDINGS, bandwidthMbits });
    expect(() => nft(GUEST, rules)).not.toThrow();
  });

  test.each([
    { to: '8.8.8.8', limited: true },
    { to: '127.0.0.1', limited: false },
  ])('bound the packets a second, but not those of the sandbox to itself ($to)', ({ to, limited }) => {
    nft(GUEST, compilePolicy(PUBLIC_PROFILE, SURROUNDINGS));
    const begun = performance.now();
    const script = `
      const socket = require("node:dgram").createSocket("udp4");
      let [open, sent, dropped] = [0, 0, 0];
      const next = () => {
        for (; open < 100 && sent < 300_000; open += 1, sent += 1) {
          socket.send("x", 9, "${to}", (error) => {
            open -= 1;
            if (error) dropped += 1;
            if (open === 0 && sent === 300_000) return socket.close(() => console.log(sent - dropped));
            if (open === 0) next();
          });
        }
      };
      socket.bind(next);
      socket.on("error", () => undefined);`;
    const passed = Number(sh(`exec ${process.execPath} -e '${script}'`, GUEST));
    const seconds = (performance.now() - begun) / 1_000;
    if (!limited) return expect(passed).toBe(300_000);
    expect(passed).toBeGreaterThanOrEqual(BANDWIDTH.packetsPerSecond);
    expect(passed).toBeLessThanOrEqual(BANDWIDTH.packetsPerSecond * (1 + seconds));
  });

  test('let a sandbox talk to itself without a trace in the memory of the machine', () => {
    nft(GUEST, compilePolicy(PUBLIC_PROFILE, { ...SURROUNDINGS, openableGroups: [] }));
    const tracked = () => Number(sh('cat /proc/sys/net/netfilter/nf_conntrack_count', GUEST));
    const before = tracked();
    const got = sh(
      `exec ${process.execPath} -e '
      const socket = require("node:dgram").createSocket("udp4");
      const own = ["127.0.0.1", "127.9.9.9", "${GUEST_V4}"];
      let sent = 0;
      socket.on("error", () => undefined);
      socket.bind(9, () => {
        const next = () => {
          if ((sent += 1) < 6000) return socket.send("x", 1_024 + sent, own[sent % own.length], next);
          socket.on("message", (text) => String(text) === "heard" && socket.close(() => console.log("heard")));
          socket.send("heard", 9, "127.0.0.1");
        };
        next();
      });'`,
      GUEST,
    );
    expect(got).toBe('heard\n');
    expect(tracked() - before).toBeLessThan(100);
  });

  test.each(['public', 'private', 'link_local', 'metadata', 'host'] as const)(
    'give the group %s its addresses, and none of another group',
    async (group) => {
      const rules: Rule[] = [{ direction: 'any', destination: { group }, action: 'allow' }];
      const openableGroups: GuardedGroup[] = ['host', 'metadata'];
      await expectVerdicts(
        { rules },
        [...everything('egress', 53), ...everything('egress', 80)],
        openableGroups,
      );
      await expectVerdicts({ rules }, everything('ingress', 53));
      const denied: Rule[] = [{ direction: 'any', destination: { group }, action: 'deny' }];
      await expectVerdicts(
        { default_egress: 'allow', rules: denied },
        everything('egress', 53),
        openableGroups,
      );
    },
  );

  test.each<{ openableGroups: GuardedGroup[] }>([
    { openableGroups: [] },
    { openableGroups: ['host'] },
    { openableGroups: ['metadata'] },
  ])(
    'keep forbidden addresses closed under every policy, except those that the operator allows (openable: $openableGroups)',
    async ({ openableGroups }) => {
      const packets = [...everything('egress', 53), ...everything('egress', 80)];
      await expectVerdicts({ default_egress: 'allow' }, packets, openableGroups);
      const rules = (['host', 'metadata', { cidr: '0.0.0.0/0' }, { cidr: '::/0' }] as const).map(
        (destination): Rule => ({
          direction: 'any',
          destination: typeof destination === 'string' ? { group: destination } : destination,
          action: 'allow',
        }),
      );
      await expectVerdicts({ rules }, packets, openableGroups);
    },
  );

  test('give the verdict of the policy for any rules and packets', { timeout: 120_000 }, async () => {
    const packets = fc.array(
      packet.filter(({ way, peer }) => way === 'egress' || !WHAT[peer]!.includes('neighbour')),
      { minLength: 20, maxLength: 40 },
    );
    await fc.assert(fc.asyncProperty(policy, packets, openableGroups, expectVerdicts), {
      numRuns: 40,
      endOnFailure: true,
    });
  });

  test('pass pings by the rules for their protocol', () => {
    const ping = (to: string, from = GUEST) => {
      try {
        sh(`busybox ping -c 1 -W 1 ${to}`, from);
        return true;
      } catch {
        return false;
      }
    };
    const allow = (...protocols: NonNullable<Rule['protocols']>) =>
      nft(
        GUEST,
        compilePolicy(
          { rules: [{ direction: 'any', destination: 'any', protocols, action: 'allow' }] },
          SURROUNDINGS,
        ),
      );
    allow('tcp', 'udp');
    expect([ping('8.8.8.8'), ping('2606:4700::1111'), ping(GUEST_V4, WORLD)]).toEqual([false, false, false]);
    allow('icmpv4');
    expect([ping('8.8.8.8'), ping('2606:4700::1111'), ping(GUEST_V4, WORLD)]).toEqual([true, false, true]);
    allow('icmpv6');
    expect([ping('8.8.8.8'), ping('2606:4700::1111'), ping(GUEST_V6, WORLD)]).toEqual([false, true, true]);
  });

  test('are replaced in one step, and replies within allowed connections still pass', async () => {
    const open: NetworkPolicy = { default_egress: 'allow', default_ingress: 'deny' };
    await expectVerdicts(open, [{ way: 'egress', peer: '8.8.8.8', protocol: 'tcp', port: 80 }]);
    await expectVerdicts({ default_ingress: 'allow' }, [
      { way: 'ingress', peer: '8.8.8.8', protocol: 'tcp', port: 80 },
      { way: 'egress', peer: '8.8.8.8', protocol: 'tcp', port: 80 },
    ]);
    expect(sh('nft list tables', GUEST).trim()).toBe('table inet sandkeep');
  });
});
