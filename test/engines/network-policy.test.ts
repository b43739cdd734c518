import fc from 'fast-check';
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { BANDWIDTH } from '../../src/machine-network/bandwidth.js';
import { compilePolicy, FLOWS } from '../../src/machine-network/compile-policy.js';
import { GatedRules } from '../../src/machine-network/gateway/gated-rules.js';
import { KernelSets } from '../../src/machine-network/gateway/kernel-sets.js';
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
import { describeNetns, NetnsPeer, nft, sh, type Attempt } from '../support/netns.js';
import { until } from '../support/polling.js';

const GUEST = `sk-guest-${randomUUID()}`;
const WORLD = `sk-world-${randomUUID()}`;
const GUEST_V4 = '10.200.0.2';
const GUEST_V6 = 'fd00:200::2';
const SURROUNDINGS = {
  hosts: ['10.200.0.1', '45.45.45.45', 'fd00:200::1', '2a00:45::45'],
  resolvers: ['9.9.9.9', '10.53.53.53', '2620:fe::fe', 'fd53::53'],
  neighbours: ['10.200.0.2/24', 'fd00:200::2/64'],
  openableGroups: [] as GuardedGroup[],
  bandwidthMbits: 250,
};

const gatedBy = (strict: boolean) => ({
  strict,
  dns: { nameservers: [], queryTimeoutMs: 1_000, rebindProtection: true },
  tls: {
    enabled: false,
    ports: [443],
    bypass: [],
    verifyUpstream: true,
    scopedVerify: [],
    authorities: [],
    blockQuic: true,
    cacheCapacity: 1,
    validityHours: 1,
  },
  secrets: [],
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
    // A test counts in its table while connections that were reset are in it.
    sh('echo 600 >/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close', WORLD);
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
    const wait = expected === 'allow' || way === 'egress' ? 60_000 : 200;
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

  test('give the verdict of the policy for any rules and packets', async () => {
    const packets = fc.array(
      packet.filter(({ way, peer }) => way === 'egress' || !WHAT[peer]!.includes('neighbour')),
      { minLength: 20, maxLength: 40 },
    );
    await fc.assert(fc.asyncProperty(policy, packets, guarded, expectVerdicts), {
      numRuns: 40,
      endOnFailure: true,
    });
  });

  test('let nothing out that the gateway must judge while there is none', async () => {
    const byName: NetworkPolicy = {
      rules: [{ direction: 'egress', destination: { domain: 'one.example' }, action: 'allow' }],
    };
    const load = (isGated: boolean) => {
      const gated = isGated ? { gated: new GatedRules(byName, gatedBy(true), SURROUNDINGS) } : {};
      const open: NetworkPolicy = { default_egress: 'allow' };
      nft(GUEST, compilePolicy(isGated ? byName : open, SURROUNDINGS, gated));
    };
    const tries = ['8.8.8.8', '2606:4700::77'].map((to) => ({ protocol: 'tcp', to, port: 443 }) as const);
    const outcomes = async (wait: number) =>
      Promise.all(tries.map(async (attempt) => guest.try({ ...attempt, wait })));
    load(false);
    expect(await outcomes(60_000)).toEqual(['reached', 'reached']);
    load(true);
    expect(await outcomes(1_000)).not.toContain('reached');

    // The last packet of a connection that the kernel has forgotten belongs to none.
    nft(
      WORLD,
      'table inet seen { chain stray { type filter hook prerouting priority -300; tcp dport { 444, 53 } counter; }; }',
    );
    const stray = (port: number) => {
      const header = `struct.pack('!HHLLBBHHH', 4000, ${port}, 1, 1, 80, 17, 512, 0, 0)`;
      const send = "socket.socket(2, 3, 6).sendto(HEADER + b'bytes', ('8.8.8.8', 0))".replace(
        'HEADER',
        header,
      );
      sh(`python3 -c "import socket, struct; ${send.replaceAll('"', "'")}"`, GUEST);
    };
    const seen = () => Number(/counter packets (\d+)/.exec(sh('nft list table inet seen', WORLD))![1]);
    for (const port of [444, 53])
      try {
        stray(port);
      } catch {
        // The sender is told that it may not.
      }
    expect(seen()).toBe(0);
    load(false);
    stray(444);
    await until(
      async () => Promise.resolve(seen()),
      (count) => count > 0,
    );
    expect(seen()).toBe(1);
  });

  test('give the verdict of rules by domain for the addresses of their names', async () => {
    const names: Record<string, string[]> = {
      'one.example': ['8.8.8.8', '10.0.0.1'],
      'two.example': ['8.8.8.8', '9.255.255.255', '45.45.45.45', '169.254.169.254'],
    };
    const named = fc.constantFrom(...Object.keys(names)).map((domain) => ({ domain }));
    const positions = fc.array(fc.tuple(fc.nat({ max: 8 }), named), { minLength: 1, maxLength: 4 });
    const packets = fc.array(
      packet.filter(({ way, peer, port }) => way === 'egress' && port !== 53 && WHAT[peer] !== undefined),
      { minLength: 20, maxLength: 30 },
    );
    const decide = async (
      base: NetworkPolicy,
      inserted: [number, { domain: string }][],
      tried: readonly Packet[],
      isStrict: boolean,
    ) => {
      const rules = [...(base.rules ?? [])];
      for (const [position, destination] of inserted)
        rules.splice(position, 0, {
          ...(rules[position] ?? { action: 'allow' }),
          destination,
          direction: 'egress',
        });
      const byDomain: NetworkPolicy = { ...base, rules };
      // A rule by domain is about each address of its name.
      const byAddress = rules.flatMap((rule): Rule[] => {
        const { destination } = rule;
        if (typeof destination === 'string' || !('domain' in destination)) return [rule];
        return names[destination.domain]!.map((address) => ({ ...rule, destination: { cidr: address } }));
      });
      const gated = new GatedRules(byDomain, gatedBy(isStrict), SURROUNDINGS);
      nft(GUEST, compilePolicy(byDomain, SURROUNDINGS, { gated }));
      const sets = new KernelSets(byDomain, async (script) => nft(GUEST, script));
      for (const [name, addresses] of Object.entries(names))
        expect(await sets.bind(name, addresses, 600)).toBe(true);
      // The gateway decides TCP in the strict form, and no rule by domain opens QUIC.
      const judged = tried.filter(({ protocol, port }) => !isStrict || (protocol === 'udp' && port !== 443));
      const seen = await Promise.all(
        judged.map(async (one) => {
          // The gateway has no IPv6.
          const expected = one.peer.includes(':') ? 'deny' : verdict({ ...base, rules: byAddress }, one, []);
          return { one, expected, outcome: await outcomeOf(one, expected) };
        }),
      );
      for (const { one, expected, outcome } of seen)
        expect(outcome, JSON.stringify(one)).toBe(expected === 'allow' ? 'reached' : 'refused');
    };
    await fc.assert(fc.asyncProperty(policy, positions, packets, fc.boolean(), decide), {
      numRuns: 20,
      endOnFailure: true,
    });
  });

  test('bound the connections of a sandbox by carrier', async () => {
    const tried = Array.from({ length: 4 }, () => ({ way: 'egress', peer: '8.8.8.8', port: 443 }) as const);
    nft(GUEST, compilePolicy(PUBLIC_PROFILE, SURROUNDINGS, { limits: { tcp: null, udp: 2 } }));
    const outcomes: string[] = [];
    for (const one of tried) outcomes.push(await outcomeOf({ ...one, protocol: 'udp' }, 'allow'));
    expect(outcomes).toEqual(['reached', 'reached', 'refused', 'refused']);
    expect(await outcomeOf({ ...tried[0]!, protocol: 'tcp' }, 'allow')).toBe('reached');
  });

  test('pass pings by the rules for their protocol', () => {
    const ping = (to: string, isAllowed: boolean, from = GUEST) => {
      try {
        // A ping that is refused waits for nothing.
        sh(`busybox ping -c 1 -W ${isAllowed ? 60 : 1} ${to}`, from);
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
    const expectPings = (v4: boolean, v6: boolean, own: string, isIn: boolean) =>
      expect([ping('8.8.8.8', v4), ping('2606:4700::1111', v6), ping(own, isIn, WORLD)]).toEqual([
        v4,
        v6,
        isIn,
      ]);
    expectPings(false, false, GUEST_V4, false);
    allow('icmpv4');
    expectPings(true, false, GUEST_V4, true);
    allow('icmpv6');
    expectPings(false, true, GUEST_V6, true);
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
