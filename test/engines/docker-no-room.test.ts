import { spawnSync } from 'node:child_process';
import { createServer, connect, type AddressInfo } from 'node:net';
import { once } from 'node:events';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { addressOf, bridgeOf, end, holderOf, startWith } from '../support/docker-network.js';
import { describeDocker, docker, IMAGE, makeImage } from '../support/docker.js';
import { describeNetns } from '../support/netns.js';
import { until, untilStatus } from '../support/polling.js';
import type { TestService } from '../support/service.js';

/** BR_MAX_PORTS of the kernel. */
const PORTS = 1_024;

interface Options {
  wait?: boolean;
  network?: object;
}

describeDocker('sandboxes on the bridge of an installation', () => {
  describeNetns('with links of its own', () => {
    let service: TestService;
    let client: Client;
    beforeAll(async () => {
      makeImage();
      service = await startWith({});
      client = await service.newOrg();
    });
    afterAll(async () => end(service, client));

    const create = async (name: string, cmd: string[] = [], { wait = true, ...more }: Options = {}) =>
      (
        await client.post(
          '/v1/sandboxes',
          {
            name,
            image: { type: 'oci', reference: IMAGE },
            pull_policy: 'never',
            runtime: { cmd },
            resources: { vcpus: 0, memory_mib: 64 },
            ...more,
          },
          { start: true, ...(wait ? { wait_for: 'running' } : {}) },
        )
      ).body;

    test('go to another bridge when one has no port, and wait with the reason where they cannot', async () => {
      const first = await create('first');
      expect(first.status).toBe('running');
      const own = await bridgeOf(service);
      const { Id } = await docker.getNetwork(own).inspect();
      const bridge = `br-${Id.slice(0, 12)}`;
      // Both ends of each pair are ports. One more pair than needed: the kernel refuses what is too much.
      const pairs = Array.from({ length: PORTS / 2 }, (_, index) => `skroom${index}`);
      const batch = (lines: string[]) =>
        spawnSync('ip', ['-force', '-batch', '-'], { input: `${lines.join('\n')}\n` });
      batch(
        pairs.flatMap((pair) => [
          `link add ${pair}a master ${bridge} type veth peer name ${pair}b`,
          `link set ${pair}b master ${bridge}`,
        ]),
      );
      const networksOf = async (id: string) => Object.keys((await holderOf(id))!.NetworkSettings.Networks);
      try {
        // Engines before version 25 cannot move a container with a MAC address of its own.
        const network = { interface: { mac: [2, 0, 0, 0, 0, 7] } };
        const { id } = await create('stays', [], { wait: false, network });
        const { body } = await until(
          () => client.get(`/v1/sandboxes/${id}`),
          ({ body: { status_reason: reason } }) => reason === 'insufficient_capacity',
        );
        expect([body.status, body.last_failure_message]).toEqual([
          'starting',
          'the network of the engine is full: a bridge has 1,024 ports; stop a sandbox, or add a worker',
        ]);
        const moved = await create('moves');
        expect(moved.status).toBe('running');
        expect(await networksOf(moved.id)).toEqual([`${own}-2`]);
        expect(await networksOf(first.id)).toEqual([own]);
        batch(pairs.slice(0, 5).map((pair) => `link del ${pair}a`));
        const started = await untilStatus(client, id, 'running');
        expect([started.body.status_reason, started.body.last_failure_message]).toEqual([null, null]);
        expect(await networksOf(id)).toEqual([own]);
      } finally {
        batch(pairs.map((pair) => `link del ${pair}a`));
      }
    });

    test('are reached at their address, and from elsewhere through the machine, as docs/sessions.md says', async () => {
      const serve = 'echo served > /tmp/index.html; exec busybox httpd -f -p 8000 -h /tmp';
      const { id } = await create('web', ['busybox', 'sh', '-c', serve]);
      const { body } = await client.post(`/v1/sandboxes/${id}/exec`, {
        cmd: 'busybox',
        args: ['hostname', '-i'],
      });
      const address = body.stdout.trim();
      expect(address).toBe(await addressOf(id));
      const served = (host: string, port: number) =>
        until(
          () =>
            fetch(`http://${host}:${port}/`, { signal: AbortSignal.timeout(5_000) })
              .then((answer) => answer.text())
              .catch(() => ''),
          (text) => text.includes('served'),
        );
      await served(address, 8000);
      // The relay of the recipe, socat, does the same.
      const relay = createServer((socket) => {
        const inner = connect(8000, address);
        socket.pipe(inner).pipe(socket);
        for (const each of [socket, inner]) each.on('error', () => undefined);
      }).listen(0, '0.0.0.0');
      await once(relay, 'listening');
      try {
        await served('127.0.0.1', (relay.address() as AddressInfo).port);
      } finally {
        relay.close();
      }
    });
  });
});
