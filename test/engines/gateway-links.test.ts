import { randomUUID } from 'node:crypto';
import { closeSync, openSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ipIn, makeLink, outerLink } from '../../src/machine-network/gateway/links.js';
import { gatewayRules, NO_DELIVERY, DELIVERY } from '../../src/machine-network/gateway/gateway-rules.js';
import { applyRules } from '../../src/machine-network/nftables.js';
import { describeNetns, sh } from '../support/netns.js';

const NAMES = ['gateway', 'first', 'second'].map((name) => `sk-${name}-${randomUUID()}`);
const [GATEWAY, FIRST, SECOND] = NAMES as [string, string, string];
const ADDRESS = '10.201.0.2';

describeNetns('links of sandboxes to the gateway', () => {
  const descriptors = new Map<string, number>();

  beforeAll(async () => {
    for (const name of NAMES) {
      sh(`ip netns add ${name}`);
      descriptors.set(name, openSync(`/run/netns/${name}`, 'r'));
    }
    for (const name of [FIRST, SECOND]) {
      sh(
        `ip link add eth0 type veth peer name eth1; ip link set eth0 up; ip addr add ${ADDRESS}/24 dev eth0; ip link set lo up`,
        name,
      );
    }
    const gateway = descriptors.get(GATEWAY)!;
    await ipIn(gateway, NO_DELIVERY, [], ['-force']).catch(() => undefined);
    await ipIn(gateway, DELIVERY);
    await applyRules(
      gateway,
      gatewayRules({ hosts: [], resolvers: [], neighbours: ['10.201.0.1/24'], openableGroups: [] }),
    );
  });

  afterAll(() => {
    for (const descriptor of descriptors.values()) closeSync(descriptor);
    for (const name of NAMES) sh(`ip netns del ${name}`);
  });

  // The kernel takes the namespace of an ended sandbox apart later, while the engine gives out its address at once.
  test('lead to the new sandbox while the ended one with its address still has a link', async () => {
    const [gateway, first, second] = NAMES.map((name) => descriptors.get(name)!) as [number, number, number];
    const link = { address: ADDRESS, mtu: undefined };
    await makeLink(first, gateway, { ...link, sandboxId: 'first' });
    await makeLink(second, gateway, { ...link, sandboxId: 'second' });
    const route = () => sh(`ip route get ${ADDRESS}`, GATEWAY);
    expect(route()).toContain(`dev ${outerLink('second')}`);

    sh(`ip link del ${outerLink('first')}`, GATEWAY);
    expect(route()).toContain(`dev ${outerLink('second')}`);
  });

  test('replace the link of the previous run of the same sandbox, which the kernel has not removed yet', async () => {
    const [gateway, first, second] = NAMES.map((name) => descriptors.get(name)!) as [number, number, number];
    const link = { address: ADDRESS, mtu: undefined, sandboxId: 'again' };
    await makeLink(first, gateway, link);
    await makeLink(second, gateway, link);
    expect(sh('ip link show gw0', SECOND)).toContain('state UP');
    expect(() => sh('ip link show gw0', FIRST)).toThrow(/does not exist/);
  });
});
