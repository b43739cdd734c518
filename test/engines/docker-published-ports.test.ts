import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { makeClient, type Client } from '../support/client.js';
import {
  addressOf,
  end,
  FAR,
  gatewayOf,
  holderOf,
  makeWorld,
  NEAR,
  pidOf,
  reaches,
  removeWorld,
  startWith,
  WORLD,
} from '../support/docker-network.js';
import { answers, expectAnswers } from '../support/tcp-answers.js';
import { describeDocker, docker, IMAGE, makeImage } from '../support/docker.js';
import { describeNetns, sh } from '../support/netns.js';
import { until, untilStatus } from '../support/polling.js';
import { cleanUp, kill, launch, makeFolder, ready, stop } from '../support/processes.js';
import type { TestService } from '../support/service.js';

const running = { start: true, wait_for: 'running', wait_timeout: 120 };
const SERVING = {
  runtime: {
    cmd: ['busybox', 'nc', '-ll', '-p', '8080', '-e', '/bin/busybox', 'echo', 'reached'],
  },
};
const EVERYTHING = { default_egress: 'allow', default_ingress: 'allow', rules: [] };

describeDocker('published ports of docker sandboxes', () => {
  describeNetns('with the firewall tools', () => {
    let service: TestService;
    let client: Client;

    beforeAll(async () => {
      makeImage();
      makeWorld({ hasMetadata: false });
      // The least protected installation: policies may open the machine.
      service = await startWith({ allow: ['host'], publishedAddresses: [NEAR, '::1'] });
      client = await service.newOrg();
    });
    afterAll(async () => {
      await end(service, client);
      removeWorld();
    });

    async function create(
      name: string,
      ports: object[],
      network: object = {},
      by = client,
      more: object = SERVING,
    ) {
      const image = { type: 'oci', reference: IMAGE };
      const request = { name, image, pull_policy: 'never', network: { ports, ...network }, ...more };
      const { body } = await by.post('/v1/sandboxes', request, running);
      expect(body.status, JSON.stringify(body)).toBe('running');
      const published: number[] = body.spec.network.ports.map(({ host_port }: any) => host_port);
      return { id: body.id as string, published, port: published[0]! };
    }
    const outsideReaches = (address: string, port: number) =>
      sh(`timeout 2 busybox nc -w 2 ${address} ${port} </dev/null 2>&1 || true`, WORLD).includes('reached');

    test('on loopback addresses are reached by the machine alone', async () => {
      const { id, published } = await create('loopback', [
        { guest_port: 8080 },
        { guest_port: 8080, host_bind: '::1' },
      ]);
      const [port, port6] = published as [number, number];
      await expectAnswers('127.0.0.2', port);
      await expectAnswers('::1', port6);
      const neighbour = await create('neighbour', [], { policy: EVERYTHING });
      const machine = Object.values(networkInterfaces())
        .flatMap((addresses) => addresses ?? [])
        .filter(({ family, internal }) => family === 'IPv4' && !internal)
        .map(({ address }) => address);
      expect(machine).toContain(await gatewayOf(id));
      for (const address of [...machine, '127.0.0.2'])
        for (const each of [neighbour.id, id])
          expect(await reaches(each, address, port), address).toBe(false);
      const own = await addressOf(id);
      expect(await reaches(neighbour.id, own, 8080)).toBe(false);
      expect(outsideReaches(NEAR, port)).toBe(false);
      // Engines before version 28 forward this one.
      expect(outsideReaches(own, 8080)).toBe(false);
    });

    test('on other addresses are reached by the sources that the policy allows', async () => {
      const bind = [{ guest_port: 8080, host_bind: NEAR }];
      const from = (cidr: string) => ({
        policy: { rules: [{ direction: 'ingress', destination: { cidr }, action: 'allow' }] },
      });
      const open = await create('open', bind);
      const allowing = await create('allowing', bind, from(`${FAR}/32`));
      const denying = await create('denying', bind, from('198.51.100.0/24'));
      await until(
        async () => Promise.resolve(outsideReaches(NEAR, open.port)),
        (found) => found,
      );
      await until(
        async () => Promise.resolve(outsideReaches(NEAR, allowing.port)),
        (found) => found,
      );
      expect(outsideReaches(NEAR, denying.port)).toBe(false);
      expect(await answers('127.0.0.2', open.port)).toBe(false);
      // The guest's address has no way in that the policy does not have.
      expect(outsideReaches(await addressOf(denying.id), 8080)).toBe(false);
    });

    test('carry UDP', async () => {
      const { id, port } = await create('udp', [{ guest_port: 8080, protocol: 'udp' }]);
      // The image has no program that answers UDP.
      const echo = `const s = require('dgram').createSocket('udp4'); s.bind(8080); s.on('message', (m, r) => s.send(m, r.port, r.address))`;
      const inside = `--net=/proc/${await pidOf(id)}/ns/net`;
      const program = spawn('nsenter', [inside, process.execPath, '-e', echo], { stdio: 'ignore' });
      const socket = createSocket('udp4').on('error', () => undefined);
      const asking = setInterval(() => socket.send('reached', port, '127.0.0.2'), 100);
      try {
        const [answer] = (await once(socket, 'message')) as [Buffer];
        expect(answer.toString()).toBe('reached');
      } finally {
        clearInterval(asking);
        socket.close();
        program.kill();
      }
    });

    test('lead into a sandbox with a gateway', async () => {
      const rules = [
        { direction: 'egress', destination: { domain: 'www.allowed.example' }, action: 'allow' },
        { direction: 'ingress', destination: { group: 'host' }, action: 'allow' },
      ];
      const { port } = await create('gated', [{ guest_port: 8080 }], { policy: { rules } });
      await expectAnswers('127.0.0.2', port);
    });

    test('close with the run, come back with the next, and go with the sandbox', async () => {
      const { id, port } = await create('again', [{ guest_port: 8080 }]);
      await client.post(`/v1/sandboxes/${id}/stop`, undefined, { wait_for: 'stopped' });
      await until(
        () => answers('127.0.0.2', port),
        (open) => !open,
      );
      const start = async () => client.post(`/v1/sandboxes/${id}/start`, undefined, { wait_for: 'running' });
      expect((await start()).body.spec.network.ports[0].host_port).toBe(port);
      await expectAnswers('127.0.0.2', port);
      // As after a restart of the engine.
      await docker.getContainer(`sandkeep-net-${id}`).kill();
      await until(
        async () => (await client.get(`/v1/sandboxes/${id}`)).body.status,
        (status) => status === 'stopped' || status === 'failed',
      );
      await start();
      await expectAnswers('127.0.0.2', port);
      await client.delete(`/v1/sandboxes/${id}`);
      await until(
        () => holderOf(id),
        (holder) => holder === undefined,
      );
      expect(await answers('127.0.0.2', port)).toBe(false);
      // At once: another sandbox waits while the engine still has the port.
      const { id: second } = await create('first-holder', [{ guest_port: 8080, host_port: port }]);
      await client.delete(`/v1/sandboxes/${second}`);
      await create('second-holder', [{ guest_port: 8080, host_port: port }]);
      await expectAnswers('127.0.0.2', port);
    });

    test('fail the start with the reason while another program has one, and the next start tries again', async () => {
      const program = createServer();
      program.listen(0, '127.0.0.2');
      await once(program, 'listening');
      const { port } = program.address() as { port: number };
      const settings = service.ctx.settings as { publishedPorts: readonly string[] };
      settings.publishedPorts = [`${port}`, ...settings.publishedPorts];
      const image = { type: 'oci', reference: IMAGE };
      const ports = [{ guest_port: 8080, host_port: port }];
      const request = { name: 'taken', image, pull_policy: 'never', network: { ports }, ...SERVING };
      const { body } = await client.post('/v1/sandboxes', request, { start: true });
      const failed = await untilStatus(client, body.id, 'failed');
      expect(failed.body.last_failure_message).toContain(
        `another program of the machine has the port 127.0.0.2:${port} of network.ports`,
      );
      program.close();
      const again = await client.post(`/v1/sandboxes/${body.id}/start`, undefined, { wait_for: 'running' });
      expect(again.body.status, again.text).toBe('running');
      await expectAnswers('127.0.0.2', port);
    });

    test("are published on the operator's own network, also by its IPv6", async () => {
      const unique = randomUUID().slice(0, 4);
      const name = `sandkeep-test-${unique}`;
      const IPAM = { Config: [{ Subnet: `fd5b:4e:${unique}::/64` }] };
      const network = await docker.createNetwork({ Name: name, EnableIPv6: true, IPAM });
      const own = await startWith({ network: name, publishedAddresses: ['::1'] });
      const tenant = await own.newOrg();
      try {
        const ports = [{ guest_port: 8080 }, { guest_port: 8080, host_bind: '::1' }];
        const rules = [{ direction: 'ingress', destination: { group: 'host' }, action: 'allow' }];
        const { published } = await create('there', ports, { policy: { rules } }, tenant);
        await expectAnswers('127.0.0.2', published[0]!);
        await expectAnswers('::1', published[1]!);
      } finally {
        await end(own, tenant);
        await network.remove();
      }
    });

    test('stay open while the service is killed, also during a start, and nothing is left in the end', async () => {
      const folder = makeFolder();
      const dataDir = join(folder, 'data');
      const fixed = ['--json', '--port', '0', '--preview-host', 'none', '--runtime', 'docker'];
      const serve = async () => ready(launch(['serve', ...fixed, '--data-dir', dataDir]), dataDir);
      try {
        let served = await serve();
        const key = served.firstKey!;
        const by = () => makeClient(served.url, { org: { id: '', name: '', slug: '' }, key, keyId: '' });
        const first = await create('survivor', [{ guest_port: 8080 }], {}, by());
        const request = {
          name: 'interrupted',
          image: { type: 'oci', reference: IMAGE },
          pull_policy: 'never',
          network: { ports: [{ guest_port: 8080 }] },
          ...SERVING,
        };
        const { body: second } = await by().post('/v1/sandboxes', request, { start: true });
        kill('SIGKILL', served.pid);
        await served.exited;
        await expectAnswers('127.0.0.2', first.port);
        served = await serve();
        const { body } = await untilStatus(by(), second.id, 'running');
        const ports = [first.port, body.spec.network.ports[0].host_port as number];
        for (const port of ports) await expectAnswers('127.0.0.2', port);
        for (const id of [first.id, second.id]) {
          await by().delete(`/v1/sandboxes/${id}`);
          await until(
            () => holderOf(id),
            (holder) => holder === undefined,
          );
        }
        for (const port of ports) expect(await answers('127.0.0.2', port)).toBe(false);
        await until(
          async () => (await by().get('/v1/quotas')).body.published_ports as number,
          (count) => count === 0,
        );
        await stop(served);
      } finally {
        await cleanUp(folder);
      }
    });
  });
});
