import { randomUUID } from 'node:crypto';
import { createServer, type Server } from 'node:net';
import { networkInterfaces } from 'node:os';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import {
  addressOf,
  bridgeOf,
  end,
  expectReached,
  FORBIDDEN,
  forbiddenPackets,
  gatewayOf,
  holderOf,
  hostReaches,
  leaveOrphan,
  LINK_LOCAL,
  makeWorld,
  METADATA,
  networkOf,
  pidOf,
  PRIVATE,
  PUBLIC,
  reaches,
  removeWorld,
  RESOLVER,
  rulesIn,
  startWith,
  untilReached,
  WORLD,
} from '../support/docker-network.js';
import { expectAnswers } from '../support/tcp-answers.js';
import { describeDocker, docker, execIn, IMAGE, makeImage } from '../support/docker.js';
import { describeNetns, NetnsPeer, sh } from '../support/netns.js';
import type { TestService } from '../support/service.js';
import { until, untilStatus } from '../support/polling.js';

/** A sandbox with a holder only, as after a kill during its start. */
const ORPHAN = randomUUID();
/** In the network of `PRIVATE`. */
const NEIGHBOURING = PRIVATE.replace(/\d+$/, '6');

const running = { start: true, wait_for: 'running', wait_timeout: 120 };

describeDocker('the network of docker sandboxes', () => {
  describeNetns('with the firewall tools', () => {
    let service: TestService;
    let client: Client;
    let world: NetnsPeer;
    let host: Server;
    let hostPort: number;

    beforeAll(async () => {
      makeImage();
      makeWorld();
      world = await NetnsPeer.start(WORLD, [53, 80, 8080], PUBLIC);
      host = createServer((socket) => socket.on('error', () => undefined).end('reached'));
      await new Promise<void>((resolve) => host.listen(0, '::', resolve));
      hostPort = (host.address() as { port: number }).port;
      service = await startWith({ allow: ['host', 'metadata'] });
      client = await service.newOrg();
      await leaveOrphan(service, ORPHAN);
    });
    afterAll(async () => {
      await end(service, client);
      await docker
        .getContainer(`sandkeep-net-${ORPHAN}`)
        .remove({ force: true })
        .catch(() => undefined);
      host.close();
      await world.stop();
      removeWorld();
    });

    const create = async (name: string, more: Record<string, unknown> = {}, by = client) => {
      const image = { type: 'oci', reference: IMAGE };
      const { body } = await by.post(
        '/v1/sandboxes',
        { name, image, pull_policy: 'never', ...more },
        running,
      );
      expect(body.status, JSON.stringify(body)).toBe('running');
      return body.id as string;
    };
    const recordOf = async (id: string): Promise<any[]> => {
      service.ctx.network.record.endMinute();
      const { body } = await client.get('/v1/events', { resource_id: id, category: 'network' });
      return body.data.map(({ payload }: any) => payload);
    };
    const withRules = (rules: object[], more: object = {}) => ({ network: { policy: { rules, ...more } } });
    const serve = {
      runtime: { cmd: ['busybox', 'nc', '-ll', '-p', '8080', '-e', '/bin/busybox', 'echo', 'reached'] },
    };

    test('records what the kernel lets through and refuses, also just before the end', async () => {
      const id = await create('recorded', { network: { record: true } });
      await expectReached(id, PUBLIC, 80);
      expect(await reaches(id, PRIVATE, 80)).toBe(false);
      await client.post(`/v1/sandboxes/${id}/stop`);
      // A reading may fall between two packets of the connection, so that it has two events.
      const payloads = await until(
        () => recordOf(id),
        (found) => new Set(found.map(({ verdict }) => verdict)).size === 2,
      );
      const [used, denied] = ['allowed', 'denied'].map((wanted) =>
        payloads.filter(({ verdict }) => verdict === wanted),
      );
      for (const each of used!) expect(each).toMatchObject({ address: PUBLIC, port: 80, protocol: 'tcp' });
      expect(used!.reduce((sum, { connections }) => sum + connections, 0)).toBe(1);
      expect(denied![0]).toMatchObject({ address: PRIVATE, port: 80, kind: 'connection' });
      const listed = (await client.get(`/v1/sandboxes/${id}/network/denied`)).body.data;
      expect(listed.map(({ address }: any) => address)).toEqual([PRIVATE]);
    });

    test('lists what the gateway refuses, and records what it passes by name', async () => {
      const rule = { direction: 'egress', destination: { domain: 'www.allowed.example' }, action: 'allow' };
      const id = await create('gated', { network: { record: true, policy: { rules: [rule] } } });
      await execIn(id, 'busybox', 'nslookup', '-type=a', 'www.denied.example');
      await execIn(id, 'busybox', 'nslookup', '-type=a', 'www.allowed.example');
      const head = 'GET / HTTP/1.0\\r\\nHost: www.allowed.example\\r\\n\\r\\n';
      await execIn(id, 'sh', '-c', `printf '${head}' | busybox nc -w 60 ${PUBLIC} 80`);
      const denied = await until(
        async (): Promise<any[]> => (await client.get(`/v1/sandboxes/${id}/network/denied`)).body.data,
        (found) => found.length > 0,
      );
      expect(denied[0]).toMatchObject({ kind: 'name', protocol: 'dns', name: 'www.denied.example' });
      const payloads = await until(
        () => recordOf(id),
        (found) => found.some(({ verdict }) => verdict === 'allowed'),
      );
      expect(payloads.find(({ verdict }) => verdict === 'allowed')).toMatchObject({
        domain: 'www.allowed.example',
        address: PUBLIC,
        port: 80,
        rule: 0,
        connections: 1,
      });
    });

    test('allows the public internet and name resolution without a policy, and nothing else', async () => {
      const id = await create('public', serve);
      const neighbour = await create('neighbour', serve);
      await expectReached(id, PUBLIC, 80);
      expect(await execIn(id, 'busybox', 'nslookup', '-type=a', 'some.example')).toContain(PUBLIC);
      await expectReached(id, RESOLVER, 53);
      expect(await reaches(id, RESOLVER, 80)).toBe(false);
      for (const address of FORBIDDEN) expect(await reaches(id, address, 80), address).toBe(false);
      const ours = Object.values(networkInterfaces())
        .flatMap((addresses) => addresses ?? [])
        .filter(({ family, internal }) => family === 'IPv4' && !internal)
        .map(({ address }) => address);
      expect(ours).toContain(await gatewayOf(id));
      for (const address of ours) expect(await reaches(id, address, hostPort), address).toBe(false);
      expect(await reaches(id, '127.0.0.11', hostPort)).toBe(false);
      // The sandbox accepts connections from outside, but not from other sandboxes.
      await expectAnswers(await addressOf(neighbour), 8080);
      expect(await reaches(id, await addressOf(neighbour), 8080)).toBe(false);
      // Its program may not listen yet.
      await untilReached(id, '127.0.0.1', 8080);
    });

    test("has rules that nothing inside can change, and the guest's name is its id", async () => {
      const id = await create('powers');
      const status = await execIn(id, 'cat', '/proc/1/status');
      const bounding = BigInt(`0x${/CapBnd:\s*([0-9a-f]+)/.exec(status)![1]}`);
      const [NET_ADMIN, NET_RAW] = [12n, 13n];
      expect([(bounding >> NET_ADMIN) & 1n, (bounding >> NET_RAW) & 1n]).toEqual([0n, 0n]);
      const addresses = await execIn(
        id,
        'sh',
        '-c',
        `ip addr add ${NEIGHBOURING}/24 dev eth0; ip addr show dev eth0`,
      );
      expect(addresses).toContain(`inet ${await addressOf(id)}/`);
      expect(addresses).not.toContain(`inet ${NEIGHBOURING}`);
      expect(await execIn(id, 'busybox', 'hostname')).toContain(id);
      expect(await execIn(id, 'ls', '/proc/sys/net/ipv6/conf')).toContain('eth0');
      expect(await execIn(id, 'busybox', 'ip', '-6', 'addr', 'show', 'dev', 'eth0')).not.toContain('inet6');
    });

    test('hides other sandboxes on the bridge and the installation, and makes its name files read-only', async () => {
      const id = await create('curious', withRules([], { default_egress: 'allow' }));
      const other = await create('discreet');
      const asks = (...args: string[]) => execIn(id, 'busybox', 'nslookup', ...args);
      const address = await addressOf(other);
      for (const server of [['127.0.0.11'], []]) {
        const told = (await asks(address, ...server)) + (await asks(`sandkeep-net-${other}`, ...server));
        expect(told).not.toMatch(/name = \S/);
        expect(told).not.toContain(`Address: ${address}`);
      }
      expect(await asks('-type=a', 'some.example')).toContain(PUBLIC);
      // Also not at the port to which the engine redirects name queries.
      const listening = sh(`nsenter --net=/proc/${await pidOf(id)}/ns/net cat /proc/net/tcp /proc/net/udp`);
      const ports = [...listening.matchAll(/ 0B00007F:([0-9A-F]{4})/g)].map(([, hex]) =>
        Number.parseInt(hex!, 16),
      );
      expect(ports).toHaveLength(2);
      for (const port of [53, ...ports]) {
        expect(await execIn(id, 'sh', '-c', `busybox nc -w 3 127.0.0.11 ${port} 2>&1`)).toContain('refused');
      }
      const seen = await execIn(id, 'sh', '-c', 'cat /proc/self/mountinfo /etc/hosts /etc/resolv.conf; env');
      expect(seen).not.toContain((await bridgeOf(service)).slice('sandkeep-'.length));
      expect(seen).toContain(`nameserver ${RESOLVER}`);
      expect(seen).toContain(`${await addressOf(id)}\t${id}`);
      for (const file of ['/etc/hosts', '/etc/hostname', '/etc/resolv.conf']) {
        expect(await execIn(id, 'sh', '-c', `(echo x >> ${file}) 2>&1`), file).toContain(
          'Read-only file system',
        );
      }
    });

    test('excludes the machine and its metadata under every policy by default', async () => {
      const other = await startWith({});
      const tenant = await other.newOrg();
      try {
        const allow = { direction: 'egress', action: 'allow' };
        const destinations = ['any', { cidr: '169.254.0.0/16' }, { cidr: '0.0.0.0/0' }];
        const rules = destinations.map((destination) => ({ ...allow, destination }));
        const id = await create('greedy', withRules(rules, { default_egress: 'allow' }), tenant);
        expect(await reaches(id, METADATA, 80)).toBe(false);
        expect(await reaches(id, await gatewayOf(id), hostPort)).toBe(false);
        await expectReached(id, PRIVATE, 80);
        expect(await execIn(id, 'busybox', 'nslookup', '-type=a', 'some.example')).toContain(PUBLIC);
        for (const [option, destination] of [
          ['host', { group: 'host' }],
          ['metadata', { group: 'metadata' }],
          ['metadata', { cidr: `${METADATA}/32` }],
        ] as const) {
          const named = withRules([{ ...allow, destination }]);
          const { status, body } = await tenant.post('/v1/sandboxes', {
            name: 'refused',
            image: { type: 'oci', reference: IMAGE },
            ...named,
          });
          const field = `network.policy.rules[0].destination.${Object.keys(destination)[0]}`;
          expect([status, body.error?.details]).toEqual([400, { field }]);
          expect(body.error.message).toContain(`--docker-allow ${option}`);
        }
      } finally {
        await end(other, tenant);
      }
    });

    test('follows the first matching rule, by block, group, port and protocol', async () => {
      const id = await create(
        'rules',
        withRules([
          {
            direction: 'egress',
            destination: { cidr: `${PRIVATE}/32` },
            ports: [{ start: 80, end: 80 }],
            action: 'allow',
          },
          { direction: 'egress', destination: { group: 'private' }, action: 'deny' },
          {
            direction: 'egress',
            destination: { group: 'host' },
            ports: [{ start: hostPort, end: hostPort }],
            action: 'allow',
          },
          {
            direction: 'egress',
            destination: { cidr: `${METADATA}/32` },
            protocols: ['udp'],
            action: 'allow',
          },
          { direction: 'any', destination: { group: 'link_local' }, protocols: ['tcp'], action: 'allow' },
        ]),
      );
      await expectReached(id, PRIVATE, 80);
      expect(await reaches(id, PRIVATE, 8080)).toBe(false);
      await expectReached(id, await gatewayOf(id), hostPort);
      expect(await reaches(id, METADATA, 80)).toBe(false);
      expect(await execIn(id, 'busybox', 'nslookup', '-type=a', 'x.example', METADATA)).toContain(PUBLIC);
      await expectReached(id, LINK_LOCAL, 80);
      expect(await reaches(id, PUBLIC, 80)).toBe(false);
      // Name resolution goes to the host, of which only another port was allowed.
      expect(await execIn(id, 'busybox', 'nslookup', '-type=a', 'x.example')).not.toContain(PUBLIC);
    });

    test('has separate rules for incoming connections', async () => {
      const closed = await create('closed', {
        ...serve,
        ...withRules([{ direction: 'egress', destination: 'any', action: 'allow' }]),
      });
      expect(await hostReaches(closed, 8080)).toBe(false);
      await expectReached(closed, PRIVATE, 80);
      const open = await create('open', {
        ...serve,
        ...withRules([
          {
            direction: 'ingress',
            destination: { group: 'host' },
            ports: [{ start: 8080, end: 8080 }],
            action: 'allow',
          },
        ]),
      });
      await expectAnswers(await addressOf(open), 8080);
      // A sandbox with full access still cannot reach other sandboxes.
      expect(await reaches(closed, await addressOf(open), 8080)).toBe(false);
    });

    test('passes pings by the rules for their protocol', async () => {
      const enter = async (id: string) => `busybox nsenter --net=/proc/${await pidOf(id)}/ns/net`;
      const pings = async (id: string, seconds: number) =>
        sh(`${await enter(id)} busybox ping -c 1 -W ${seconds} ${PUBLIC} || true`);
      const rule = { direction: 'egress', destination: { cidr: `${PUBLIC}/32` }, action: 'allow' };
      const able = await create('ping', withRules([{ ...rule, protocols: ['icmpv4'] }]));
      expect(await pings(able, 60)).toContain('1 packets received');
      expect(await reaches(able, PUBLIC, 80)).toBe(false);
      const unable = await create('no-ping', withRules([{ ...rule, protocols: ['tcp'] }]));
      expect(await pings(unable, 1)).not.toContain('1 packets received');
      await expectReached(unable, PUBLIC, 80);
    });

    test('is absent in a sandbox with the network disabled', async () => {
      const parts = [
        { network: { enabled: false } },
        { network: { policy: { default_egress: 'deny', default_ingress: 'deny', rules: [] } } },
        { network: { enabled: false, policy: { default_egress: 'allow', rules: [] } } },
      ];
      for (const [index, part] of parts.entries()) {
        const id = await create(`none-${index}`, part);
        expect(await execIn(id, 'ls', '/sys/class/net')).toMatch(/^lo\s*$/);
        expect(await execIn(id, 'busybox', 'hostname')).toContain(id);
        expect(await holderOf(id)).toBeUndefined();
      }
    });

    test('shows the guest its requested name, also without a network', async () => {
      const hostname = 'build-7.ci.example';
      for (const enabled of [true, false]) {
        const id = await create(`named-${enabled}`, { runtime: { hostname }, network: { enabled } });
        expect(await execIn(id, 'busybox', 'hostname')).toContain(hostname);
        const { body } = await client.get(`/v1/sandboxes/${id}`);
        expect(body.spec.runtime.hostname).toBe(hostname);
      }
    });

    test('has its rules before the first instruction, at each start', async () => {
      const before = forbiddenPackets();
      const cmd = ['sh', '-c', `for a in ${FORBIDDEN.join(' ')}; do busybox nc -w 1 $a 80; done; true`];
      const ids = await Promise.all(
        Array.from({ length: 4 }, async (_, index) => {
          const body = {
            name: `at-once-${index}`,
            image: { type: 'oci', reference: IMAGE },
            runtime: { cmd },
            lifecycle: { ends_with_command: true },
          };
          return (await client.post('/v1/sandboxes', { ...body, pull_policy: 'never' }, { start: true })).body
            .id;
        }),
      );
      for (let round = 0; round < 3; round += 1) {
        for (const id of ids) await untilStatus(client, id, 'stopped', 30_000);
        if (round < 2) await Promise.all(ids.map((id) => client.post(`/v1/sandboxes/${id}/start`, {})));
      }
      expect(forbiddenPackets()).toBe(before);
      // An ended run needs no holder for its network.
      for (const id of ids) {
        await until(
          () => holderOf(id),
          (holder) => holder?.State.Running === false,
        );
      }
    });

    test('has its rules again after a restart of the sandbox', async () => {
      const rules = [{ direction: 'egress', destination: { cidr: PRIVATE }, action: 'allow' }];
      const id = await create('again', withRules(rules));
      await client.post(`/v1/sandboxes/${id}/stop`, {});
      await untilStatus(client, id, 'stopped');
      const { body } = await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running' });
      expect(body.status).toBe('running');
      await expectReached(id, PRIVATE, 80);
      expect(await reaches(id, PUBLIC, 80)).toBe(false);
      await client.delete(`/v1/sandboxes/${id}`);
      await until(
        () => holderOf(id),
        (holder) => holder === undefined,
      );
    });

    test('fails the sandbox when its holder is killed, and has its rules again at the next start', async () => {
      const id = await create('killed');
      await docker.getContainer(`sandkeep-net-${id}`).kill();
      await untilStatus(client, id, 'failed', 20_000);
      const { body } = await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running' });
      expect(body.status).toBe('running');
      await expectReached(id, PUBLIC, 80);
      expect(await reaches(id, PRIVATE, 80)).toBe(false);
    });

    test('fails the sandbox when its holder is removed, with the reason at the next start', async () => {
      const id = await create('removed');
      await docker.getContainer(`sandkeep-net-${id}`).remove({ force: true });
      await untilStatus(client, id, 'failed', 20_000);
      await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running' });
      const { body } = await untilStatus(client, id, 'failed', 20_000);
      expect(body.last_failure_message).toContain('the network of the sandbox was removed');
    });

    test('has its bridge recreated after a removal while all sandboxes are stopped', async () => {
      const other = await startWith({});
      const tenant = await other.newOrg();
      try {
        const id = await create('rested', {}, tenant);
        await tenant.post(`/v1/sandboxes/${id}/stop`, {});
        await untilStatus(tenant, id, 'stopped');
        await until(
          () => holderOf(id),
          (holder) => holder?.State.Running === false,
        );
        await docker.getNetwork(await bridgeOf(other)).remove();
        const { body } = await tenant.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running' });
        expect(body.status, JSON.stringify(body)).toBe('running');
        await expectReached(id, PUBLIC, 80);
        expect(await reaches(id, PRIVATE, 80)).toBe(false);
      } finally {
        await end(other, tenant);
      }
    });

    test('accepts a sandbox with the label of a holder as a sandbox', async () => {
      const id = await create('honest');
      const labels = { 'dev.sandkeep.holder-of': id, 'dev.sandkeep.sandbox': id };
      const other = await create('impostor', { labels, network: { enabled: false } });
      await client.post(`/v1/sandboxes/${other}/stop`, {});
      await untilStatus(client, other, 'stopped');
      await service.runtime.list();
      await service.runtime.list();
      expect((await client.get(`/v1/sandboxes/${id}`)).body.status).toBe('running');
      expect((await holderOf(id))!.State.Running).toBe(true);
    });

    test('has its rules before the sandbox joins a holder that was started by hand', async () => {
      const id = await create('restarted');
      await client.post(`/v1/sandboxes/${id}/stop`, {});
      await untilStatus(client, id, 'stopped');
      const begin = async () => docker.getContainer(`sandkeep-net-${id}`).start();
      const started = async () => begin().then(async () => rulesIn(await pidOf(id)));
      // It is stopped a moment after the sandbox, and within a second of this start.
      await until(
        () => started().catch(() => undefined),
        (rules) => rules !== undefined && !rules.includes('sandkeep'),
      );
      await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running' });
      expect(rulesIn(await pidOf(id))).toContain('sandkeep');
      expect(await reaches(id, PRIVATE, 80)).toBe(false);
    });

    test('has the same rules on a network of the operator with IPv6', async () => {
      // A new name, because a killed test run may have left the previous one.
      const unique = randomUUID().slice(0, 4);
      const name = `sandkeep-test-${unique}`;
      const ipam = { Config: [{ Subnet: `fd5a:4e:${unique}::/64` }] };
      const network = await docker.createNetwork({ Name: name, EnableIPv6: true, IPAM: ipam });
      const other = await startWith({ network: name, allow: ['host'] });
      const tenant = await other.newOrg();
      try {
        const [closed, open] = [
          await create('closed', serve, tenant),
          await create(
            'open',
            {
              ...serve,
              ...withRules([{ direction: 'any', destination: { group: 'host' }, action: 'allow' }]),
            },
            tenant,
          ),
        ];
        const { IPv6Gateway: gateway } = (await networkOf(closed))!;
        const { GlobalIPv6Address: address } = (await networkOf(open))!;
        expect(await reaches(closed, gateway, hostPort)).toBe(false);
        // The kernel first looks for a duplicate of a new address, and uses it a second later.
        await untilReached(open, gateway, hostPort);
        await expectAnswers(address, 8080);
        expect(await reaches(closed, address, 8080)).toBe(false);
        await expectReached(closed, PUBLIC, 80);
        expect(await reaches(open, PUBLIC, 80)).toBe(false);
      } finally {
        await end(other, tenant);
        await network.remove();
      }
    });

    test('is cleaned of the remains of a killed start', async () => {
      expect((await service.runtime.list()).map(({ sandboxId }) => sandboxId)).not.toContain(ORPHAN);
      await until(
        async () => {
          await service.runtime.list();
          return holderOf(ORPHAN);
        },
        (holder) => holder === undefined,
      );
    });
  });
});
