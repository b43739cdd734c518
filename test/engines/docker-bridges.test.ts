import { randomUUID } from 'node:crypto';
import { createServer, type Server } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Bridges } from '../../src/engines/docker/network/bridges.js';
import type { Client } from '../support/client.js';
import {
  addressOf,
  bridgeOf,
  end,
  gatewayOf,
  holderOf,
  makeWorld,
  networksNamed,
  PUBLIC,
  reaches,
  removeWorld,
  startWith,
  WORLD,
} from '../support/docker-network.js';
import { expectAnswers } from '../support/tcp-answers.js';
import { describeDocker, docker, execIn, IMAGE, makeImage } from '../support/docker.js';
import { describeNetns, NetnsPeer } from '../support/netns.js';
import { until } from '../support/polling.js';
import type { TestService } from '../support/service.js';

const PER_BRIDGE = 2;
/** It opens what a policy can. */
const OPEN = { network: { policy: { default_egress: 'allow', default_ingress: 'allow', rules: [] } } };
const SERVE = {
  runtime: { cmd: ['busybox', 'nc', '-ll', '-p', '8080', '-e', '/bin/busybox', 'echo', 'reached'] },
};

describeDocker('the bridges of an installation', () => {
  describeNetns('with the firewall tools', () => {
    let service: TestService;
    let client: Client;
    let world: NetnsPeer;
    let host: Server;
    let hostPort: number;
    let bridge: string;

    beforeAll(async () => {
      makeImage();
      makeWorld({ hasMetadata: false });
      world = await NetnsPeer.start(WORLD, [53, 80], PUBLIC);
      host = createServer((socket) => socket.on('error', () => undefined).end('reached'));
      await new Promise<void>((resolve) => host.listen(0, '0.0.0.0', resolve));
      hostPort = (host.address() as { port: number }).port;
      service = await startWith({ sandboxesPerBridge: PER_BRIDGE });
      client = await service.newOrg();
      bridge = await bridgeOf(service);
    });
    afterAll(async () => {
      await end(service, client);
      host.close();
      await world.stop();
      removeWorld();
    });

    const create = async (name: string, more: object = {}) => {
      const { body } = await client.post(
        '/v1/sandboxes',
        { name, image: { type: 'oci', reference: IMAGE }, pull_policy: 'never', ...OPEN, ...SERVE, ...more },
        { start: true, wait_for: 'running', wait_timeout: 120 },
      );
      expect(body.status, JSON.stringify(body)).toBe('running');
      return body.id as string;
    };
    const placeOf = async (id: string) => Object.keys((await holderOf(id))!.NetworkSettings.Networks);
    const remove = async (id: string) => {
      await client.delete(`/v1/sandboxes/${id}`);
      await until(
        () => holderOf(id),
        (found) => found === undefined,
      );
    };

    test('take sandboxes up to their number, isolate them from each other, and go when they are empty', async () => {
      const ids: string[] = [];
      for (const name of ['a', 'b', 'c', 'd', 'e']) ids.push(await create(name));
      const [a, b, c, d, e] = ids as [string, string, string, string, string];
      expect(await Promise.all(ids.map(placeOf))).toEqual(
        [bridge, bridge, `${bridge}-2`, `${bridge}-2`, `${bridge}-3`].map((name) => [name]),
      );
      for (const id of ids) await expectAnswers(await addressOf(id), 8080);
      // On one bridge and across bridges, in both directions, also where a policy opens everything.
      const pairs = [
        [a, b],
        [a, c],
        [c, a],
        [d, e],
        [e, a],
      ] as const;
      const reached = pairs.map(async ([from, to]) => reaches(from, await addressOf(to), 8080));
      expect(await Promise.all(reached)).toEqual(pairs.map(() => false));
      // They started before the machine had these addresses.
      for (const other of [c, e]) {
        const gateway = await gatewayOf(other);
        await until(
          () => reaches(a, gateway, hostPort),
          (reached) => !reached,
        );
      }
      for (const id of [a, e]) {
        await until(
          () => reaches(id, PUBLIC, 80),
          (reached) => reached,
        );
      }
      await remove(e);
      await remove(c);
      await remove(d);
      expect(await placeOf(await create('f'))).toEqual([`${bridge}-2`]);
      await remove(b);
      await remove(a);
      await until(
        () => networksNamed(bridge),
        (names) => names.join() === [bridge, `${bridge}-2`].join(),
      );
    });

    test('have no way to the machine by an address of a link without a carrier', async () => {
      const name = `sk-idle-${randomUUID().slice(0, 8)}`;
      const id = await create('idle', { runtime: { cmd: ['sleep', '600'] } });
      const network = await docker.createNetwork({ Name: name, Driver: 'bridge' });
      try {
        const { IPAM } = await network.inspect();
        const gateway = IPAM!.Config![0]!.Gateway!;
        const reached = await until(
          () => reaches(id, gateway, hostPort),
          (found) => !found,
        );
        expect(reached).toBe(false);
      } finally {
        await network.remove();
      }
    });

    test('are used after a crash that came behind their creation, and share the gateway', async () => {
      await end(service, client);
      service = await startWith({ sandboxesPerBridge: PER_BRIDGE });
      client = await service.newOrg();
      bridge = await bridgeOf(service);
      const instanceId = bridge.slice('sandkeep-'.length);
      for (const name of [bridge, `${bridge}-2`])
        await docker.createNetwork({ Name: name, Labels: { 'dev.sandkeep.instance': instanceId } });
      const rule = { direction: 'egress', destination: { domain: 'www.allowed.example' }, action: 'allow' };
      const gated = { network: { policy: { rules: [rule] } }, runtime: { cmd: ['sleep', '600'] } };
      const ids = [await create('g'), await create('h', gated), await create('i', gated)];
      const places = (await Promise.all(ids.map(placeOf))).flat();
      expect(new Set(places)).toEqual(new Set([bridge, `${bridge}-2`]));
      for (const id of ids.slice(1)) {
        await execIn(id, 'busybox', 'nslookup', '-type=a', 'www.allowed.example');
        const head = 'GET / HTTP/1.0\\r\\nHost: www.allowed.example\\r\\n\\r\\n';
        const answer = await execIn(id, 'sh', '-c', `printf '${head}' | busybox nc -w 60 ${PUBLIC} 80`);
        // The server there sends a word, which the gateway has read.
        expect(answer).toContain('www.allowed.example sent an answer that is not valid HTTP');
      }
    });

    test('are one each when two processes make them at once', async () => {
      const instanceId = randomUUID();
      const both = [1, 2].map(() => new Bridges(docker, instanceId, { most: 1, changed: () => undefined }));
      try {
        const places = await Promise.all(both.map((each, index) => each.place(`sandbox-${index}`)));
        expect(places).toEqual([`sandkeep-${instanceId}`, `sandkeep-${instanceId}`]);
        expect(await networksNamed(`sandkeep-${instanceId}`)).toHaveLength(1);
      } finally {
        await both[0]!.removeAll();
      }
      expect(await networksNamed(`sandkeep-${instanceId}`)).toEqual([]);
    });
  });
});
