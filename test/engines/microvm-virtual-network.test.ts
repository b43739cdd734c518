import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readRecord } from '../../src/engines/microvm/read-record.js';
import { placesOf } from '../../src/engines/microvm/places.js';
import type { Client } from '../support/client.js';
import { sh as shInside } from '../support/guest.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { destroyAll, IMAGE, makeMicrovmDirectory, onMicrovm } from '../support/microvm/service.js';
import { describeNetns, sh } from '../support/netns.js';
import { NEXT_PUBLIC, PUBLIC, RoutedWorld, WORLD_SETUP_MS } from '../support/routed-world.js';
import { until } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';
import { answers, expectAnswers } from '../support/tcp-answers.js';

const running = { start: true, wait_for: 'running', wait_timeout: 120 };
const POLICY = { rules: [{ direction: 'egress', destination: { cidr: PUBLIC }, action: 'allow' }] };

describeMicrovm('the network of a virtual machine', () => {
  describeNetns('with the firewall tools', () => {
    let dataDir: string;
    let world: RoutedWorld;
    let service: TestService;
    let client: Client;
    const opened = new Map<string, Awaited<ReturnType<TestService['runtime']['openGuest']>>>();
    beforeAll(async () => {
      world = await RoutedWorld.start([80]);
      dataDir = await makeMicrovmDirectory();
      service = await startTestService({
        ...onMicrovm(dataDir),
        settings: { publishedAddresses: ['::1'] },
      });
      client = await service.newOrg();
    }, WORLD_SETUP_MS);
    afterAll(async () => {
      for (const { release } of opened.values()) release();
      await destroyAll(service, client);
      await service.close();
      await world.close();
      rmSync(dataDir, { recursive: true, force: true });
    });

    const create = async (name: string, network: Record<string, unknown>): Promise<string> => {
      const request = {
        name,
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        resources: { vcpus: 1, memory_mib: 192 },
        network,
      };
      const { body } = await client.post('/v1/sandboxes', request, running);
      expect(body.status, JSON.stringify(body)).toBe('running');
      opened.set(body.id, await service.runtime.openGuest(body.id));
      return body.id;
    };
    const inside = async (id: string, script: string): Promise<string> =>
      shInside(opened.get(id)!.guest, script);
    const reach = async (id: string, address: string): Promise<string> =>
      inside(id, `nc -w 60 ${address} 80 </dev/null || echo closed`);

    test('has the interface of the specification, its policy, and no neighbours', async () => {
      const mac = [2, 0, 0, 0, 0, 0x77];
      const id = await create('one', { policy: POLICY, interface: { mac, mtu: 1_280 } });
      expect(await inside(id, 'cat /sys/class/net/eth0/address /sys/class/net/eth0/mtu')).toBe(
        '02:00:00:00:00:77\n1280',
      );
      expect(await reach(id, PUBLIC)).toBe('reached');
      expect(await reach(id, NEXT_PUBLIC)).toBe('closed');
      const address = await inside(id, "ip -4 -o addr show eth0 | sed 's/.*inet //; s,/.*,,'");
      expect(await inside(id, 'cat /etc/hosts')).toContain(`${address}\t${id}`);
      const open = { policy: { default_egress: 'allow', default_ingress: 'allow' } };
      const other = await create('other', open);
      expect(await reach(other, address)).toBe('closed');
      expect(await reach(other, PUBLIC)).toBe('reached');
      const activity = await service.runtime.activity([id]);
      expect(activity.get(id)?.receivedBytes).toBeGreaterThan(100);

      // The supervisor keeps the namespace, and the kernel removes it with the sandbox.
      const { supervisor } = (await readRecord(placesOf(join(dataDir, 'microvm'), id)))!;
      const links = () => sh(`nsenter --net=/proc/${supervisor.pid}/fd/4 ip -o link`);
      expect(links()).toMatch(/ eth0@.*\n.* vm0: /);
      await client.delete(`/v1/sandboxes/${id}`);
      await until(
        async () => sh('ip -o link; ip route'),
        (lines) => !lines.includes(address),
      );
    });

    test('publishes ports of the machine, which the sandbox keeps for its next start', async () => {
      const ports = [{ guest_port: 8080 }, { guest_port: 9090, protocol: 'udp' }];
      const id = await create('published', { ports });
      const shown = async () => (await client.get(`/v1/sandboxes/${id}`)).body.spec.network.ports;
      const [{ host_port: port, host_bind: bind }] = await shown();
      const serve = 'nc -ll -p 8080 -e /bin/busybox echo reached >/dev/null 2>&1 &';
      await inside(id, serve);
      await expectAnswers(bind, port);
      // The supervisor has the port, so no other program can take it.
      const program = createServer().listen(port, bind);
      await expect(once(program, 'listening')).rejects.toThrow('EADDRINUSE');
      const { body: events } = await client.get('/v1/events', {
        resource_id: id,
        event_type: 'sandbox_created',
      });
      expect(events.data[0].payload.published_ports).toMatchObject(await shown());

      const request = { name: 'second', image: { type: 'oci', reference: IMAGE } };
      const taken = { ports: [{ guest_port: 8080, host_port: port }] };
      const conflict = await client.post('/v1/sandboxes', { ...request, network: taken });
      expect([conflict.status, conflict.body.error?.code ?? conflict.text]).toEqual([409, 'port_taken']);
      const ipv6 = { ports: [{ guest_port: 8080, host_bind: '::1' }] };
      const refused = await client.post('/v1/sandboxes', { ...request, network: ipv6 });
      expect([refused.status, refused.text]).toEqual([
        400,
        expect.stringContaining('network.ports[0].host_bind'),
      ]);

      const before = await shown();
      opened.get(id)!.release();
      await client.post(`/v1/sandboxes/${id}/stop`, {}, { wait_for: 'stopped', wait_timeout: 120 });
      expect(await answers(bind, port)).toBe(false);
      await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running', wait_timeout: 120 });
      expect(await shown()).toEqual(before);
      opened.set(id, await service.runtime.openGuest(id));
      await inside(id, serve);
      await expectAnswers(bind, port);
    });
  });
});
