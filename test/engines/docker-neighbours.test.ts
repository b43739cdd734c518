import type Docker from 'dockerode';
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { end, networkOf, pidOf, startWith } from '../support/docker-network.js';
import { expectAnswers } from '../support/tcp-answers.js';
import { describeDocker, docker, execIn, IMAGE, makeImage } from '../support/docker.js';
import { describeNetns, NetnsPeer, sh } from '../support/netns.js';
import { until } from '../support/polling.js';
import type { TestService } from '../support/service.js';

const PORT = 5353;
const WAIT_MS = 700;
const SUBNET = '10.206.7';

interface Host {
  namespace: string;
  peer: NetnsPeer;
  v4: string;
  v6: string;
  linkLocal: string;
  mac: string;
}

describeDocker('neighbours on a bridge', () => {
  describeNetns('that lets all its containers talk', () => {
    const unique = randomUUID().slice(0, 4);
    let network: Docker.Network;
    let service: TestService;
    let attacker: Client;
    let victim: Client;
    const ids: Record<string, string> = {};
    const hosts: Record<string, Host> = {};
    const plain: Docker.Container[] = [];

    /** Starts a peer in the network of a process. It has every capability there: more than any guest. */
    async function enter(name: string, pid: number, v4: string, v6: string): Promise<void> {
      const namespace = `sk-${unique}-${name}`;
      sh(`ip netns attach ${namespace} ${pid}`);
      // The kernel gives an interface its address of the link a moment after the interface is up. The address is
      // tentative until no neighbour has it.
      const link = await until(
        async () => Promise.resolve(sh('ip -6 addr show dev eth0; ip link show dev eth0', namespace)),
        (text) => /inet6 fe80::/.test(text) && !text.includes('tentative'),
      );
      const linkLocal = /inet6 (fe80::[0-9a-f:]+)/.exec(link)![1]!;
      const mac = /link\/ether ([0-9a-f:]+)/.exec(link)![1]!;
      hosts[name] = { namespace, peer: await NetnsPeer.start(namespace, [PORT]), v4, v6, linkLocal, mac };
    }

    async function startPlain(name: string): Promise<void> {
      const container = await docker.createContainer({
        Image: IMAGE,
        Entrypoint: ['sleep', '100000'],
        HostConfig: { NetworkMode: network.id },
      });
      plain.push(container);
      await container.start();
      const { State, NetworkSettings } = await container.inspect();
      const own = Object.values(NetworkSettings.Networks)[0]!;
      await enter(name, State.Pid, own.IPAddress, own.GlobalIPv6Address);
    }

    async function startSandbox(client: Client, name: string, policy?: object): Promise<void> {
      const image = { type: 'oci', reference: IMAGE };
      const more = policy === undefined ? {} : { network: { policy } };
      const spec = { name, image, pull_policy: 'never', ...more };
      const { body } = await client.post('/v1/sandboxes', spec, { start: true, wait_for: 'running' });
      expect(body.status, JSON.stringify(body)).toBe('running');
      ids[name] = body.id;
      const own = (await networkOf(body.id))!;
      await enter(name, await pidOf(body.id), own.IPAddress, own.GlobalIPv6Address);
    }

    beforeAll(async () => {
      makeImage();
      network = await docker.createNetwork({
        Name: `sandkeep-test-${unique}`,
        EnableIPv6: true,
        IPAM: { Config: [{ Subnet: `${SUBNET}.0/24` }, { Subnet: `fd5a:4e:${unique}::/64` }] },
      });
      service = await startWith({ network: `sandkeep-test-${unique}`, allow: ['host', 'metadata'] });
      attacker = await service.newOrg();
      victim = await service.newOrg();
      const open = { default_egress: 'allow', default_ingress: 'allow', rules: [] };
      await startPlain('listener');
      await startPlain('control');
      await startSandbox(attacker, 'attacker', open);
      await startSandbox(victim, 'usual');
      await startSandbox(victim, 'open', open);
    });
    afterAll(async () => {
      for (const { peer, namespace } of Object.values(hosts)) {
        await peer.stop();
        // Removes the name; the namespace itself ends with its container.
        sh(`ip netns del ${namespace}`);
      }
      for (const container of plain) await container.remove({ force: true });
      for (const { id } of (await victim.get('/v1/sandboxes')).body.data) {
        await victim.delete(`/v1/sandboxes/${id}`);
      }
      await end(service, attacker);
      await network.remove();
    });

    const from = (name: string) => hosts[name]!.peer;

    /** How often one reaches the other: by TCP and UDP over IPv4, IPv6 and IPv6 of the link. */
    async function ways(source: string, target: string): Promise<number> {
      const { v4, v6, linkLocal } = hosts[target]!;
      const tries = [v4, v6, `${linkLocal}%eth0`].flatMap((to) =>
        (['tcp', 'udp'] as const).map((protocol) => ({ protocol, to, port: PORT, wait: WAIT_MS })),
      );
      const outcomes = await Promise.all(tries.map((each) => from(source).try(each)));
      return outcomes.filter((outcome) => outcome === 'reached').length;
    }

    test('sandboxes of two organizations reach each other by no address, and plain containers do', async () => {
      await until(
        () => ways('control', 'listener'),
        (count) => count === 6,
      );
      for (const target of ['usual', 'open']) {
        // Its listener is there: the machine reaches it.
        await expectAnswers(hosts[target]!.v4, PORT);
        expect([target, await ways('attacker', target)]).toEqual([target, 0]);
        expect([target, await ways('control', target)]).toEqual([target, 0]);
      }
      expect(await ways('attacker', 'listener')).toBe(0);
    });

    test('a broadcast or multicast packet of any neighbour reaches no sandbox', async () => {
      const groups = ['255.255.255.255', `${SUBNET}.255`, '224.0.0.251', 'ff02::fb%eth0', 'ff02::1%eth0'];
      for (const to of groups) {
        const ask = { protocol: 'group', to, port: PORT, wait: WAIT_MS } as const;
        const { v4, linkLocal } = hosts['listener']!;
        const heard = await until(
          async () => (await from('control').try(ask)).split(' '),
          (found) => found.includes(to.includes(':') ? linkLocal : v4),
        );
        for (const name of ['attacker', 'usual', 'open']) {
          expect([hosts[name]!.v4, hosts[name]!.linkLocal].filter((own) => heard.includes(own))).toEqual([]);
        }
        const answered = (await from('attacker').try(ask)).split(' ');
        const others = ['listener', 'control', 'usual', 'open'].map((name) => hosts[name]!);
        expect(
          others.filter(({ v4: own, linkLocal: link }) => answered.includes(own) || answered.includes(link)),
        ).toEqual([]);
      }
    });

    test('a guest sends and receives no raw packet, so it can neither sniff nor answer for others', async () => {
      const { v4, mac } = hosts['listener']!;
      const told = sh(`busybox arping -f -I eth0 -c 60 -w 60 ${v4}`, hosts['control']!.namespace);
      expect(told.toLowerCase()).toContain(mac);
      const ask = `busybox arping -I eth0 -c 1 -w 2 ${hosts['usual']!.v4}`;
      for (const command of [ask, `busybox unshare -Ur ${ask}`]) {
        const refused = await execIn(ids['attacker']!, 'sh', '-c', `${command} 2>&1; echo ended with $?`);
        expect(refused).toContain('Operation not permitted');
      }
      const neighbours = (name: string) => sh('cat /proc/net/arp', hosts[name]!.namespace);
      expect(neighbours('control')).toContain(mac);
      for (const name of ['usual', 'open']) expect(neighbours('attacker')).not.toContain(hosts[name]!.mac);
    });
  });
});
