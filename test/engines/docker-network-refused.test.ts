import { mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { end, startWith } from '../support/docker-network.js';
import { describeDocker, docker, execIn, IMAGE, makeImage } from '../support/docker.js';
import { describeNetns, sh } from '../support/netns.js';
import type { TestService } from '../support/service.js';

const request = { name: 'asking', image: { type: 'oci', reference: IMAGE }, pull_policy: 'never' };
const running = { start: true, wait_for: 'running', wait_timeout: 120 };
const withRules = (rules: object[]) => ({ network: { policy: { rules } } });

describeDocker('network settings that docker sandboxes cannot enforce', () => {
  beforeAll(() => makeImage());

  describeNetns('with the firewall tools', () => {
    let service: TestService;
    let client: Client;
    beforeAll(async () => {
      service = await startWith({});
      client = await service.newOrg();
    });
    afterAll(() => end(service, client));

    test('are refused by the name of their field', async () => {
      const rule = { direction: 'egress', action: 'allow' };
      const refused: [field: string, part: Record<string, unknown>][] = [
        [
          'network.policy.rules[0].ports',
          withRules([{ ...rule, destination: 'any', protocols: ['icmpv4'], ports: [{ start: 1, end: 1 }] }]),
        ],
        [
          'network.policy.rules[0].protocols',
          withRules([{ ...rule, destination: { cidr: 'fd00::/8' }, protocols: ['icmpv4'] }]),
        ],
        [
          'network.policy.rules[0].destination.cidr',
          withRules([{ ...rule, destination: { cidr: 'fe80::1%eth0' } }]),
        ],
        // The addresses of its own bridge are chosen by the engine.
        ['network.interface', { network: { interface: { ipv4_address: '10.0.0.9' } } }],
        ['runtime.hostname', { runtime: { hostname: 'not_a_name' } }],
        ['runtime.hostname', { runtime: { hostname: '' } }],
        ['runtime.hostname', { runtime: { hostname: `${'a'.repeat(60)}.abcd` } }],
      ];
      for (const [field, part] of refused) {
        const { status, body } = await client.post('/v1/sandboxes', { ...request, ...part });
        expect([status, body.error?.code, body.error?.details], JSON.stringify(part)).toEqual([
          400,
          'invalid_sandbox_config',
          { field },
        ]);
      }
      const harmless = { ports: [], tls: { enabled: false }, strict: true };
      const runtime = { hostname: 'a'.repeat(63), unknown: 1 };
      const { body } = await client.post(
        '/v1/sandboxes',
        { ...request, network: harmless, runtime },
        running,
      );
      expect(body.status, JSON.stringify(body)).toBe('running');
    });
  });

  describeNetns('with a network of the operator', () => {
    const number = Number(process.env['VITEST_POOL_ID'] ?? 1) % 100;
    const subnet = `10.204.${number}`;
    const name = `sk-operator-${number}`;
    let service: TestService;
    let client: Client;
    beforeAll(async () => {
      const remove = async () => docker.getNetwork(name).remove();
      // A killed run leaves one.
      await remove().catch(() => undefined);
      await docker.createNetwork({
        Name: name,
        IPAM: { Driver: 'default', Config: [{ Subnet: `${subnet}.0/24` }] },
      });
      service = await startWith({ network: name });
      client = await service.newOrg();
    });
    afterAll(async () => {
      await end(service, client);
      await docker.getNetwork(name).remove();
    });

    test('leave an address, a hardware address and a size of packets, with a gateway too', async () => {
      const link = { ipv4_address: `${subnet}.77`, mac: [2, 66, 10, 11, 12, 14], mtu: 1_300 };
      const rule = { direction: 'egress', action: 'allow', destination: { domain: 'one.example' } };
      const network = { interface: link, policy: { rules: [rule] } };
      const { body } = await client.post('/v1/sandboxes', { ...request, network }, running);
      expect(body.status, JSON.stringify(body)).toBe('running');
      const shown = async () => execIn(body.id, 'busybox', 'ip', 'addr', 'show', 'dev', 'eth0');
      const expected = [`inet ${link.ipv4_address}/24`, '02:42:0a:0b:0c:0e', `mtu ${link.mtu}`];
      for (const part of expected) expect(await shown()).toContain(part);
      // Another one has it.
      const taken = { ...request, name: 'second', network };
      const second = await client.post('/v1/sandboxes', taken, {
        start: true,
        wait_for: 'running',
        wait_timeout: 120,
      });
      expect(second.body.status).toBe('failed');
      expect(second.body.last_failure_message).toContain(`cannot give out ${link.ipv4_address}`);
      await client.post(`/v1/sandboxes/${body.id}/stop`, {}, { wait_for: 'stopped', wait_timeout: 120 });
      await client.post(`/v1/sandboxes/${body.id}/start`, {}, { wait_for: 'running', wait_timeout: 120 });
      for (const part of expected) expect(await shown()).toContain(part);
    });
  });

  test('include every policy without the firewall tools, and sandboxes have no network', async () => {
    const path = process.env['PATH'];
    const starting = startWith({}, () => (process.env['PATH'] = ''));
    const bare = await starting.finally(() => (process.env['PATH'] = path));
    const tenant = await bare.newOrg();
    try {
      expect(bare.runtime.description).toContain('apt-get install nftables');
      const policy = { default_egress: 'allow' };
      const refused = await tenant.post('/v1/sandboxes', { ...request, network: { policy } });
      expect([refused.status, refused.body.error.details]).toEqual([400, { field: 'network.policy' }]);
      const publishing = { ...request, network: { ports: [{ guest_port: 80 }] } };
      const unpublished = await tenant.post('/v1/sandboxes', publishing);
      expect([unpublished.status, unpublished.body.error.details]).toEqual([400, { field: 'network.ports' }]);
      const { body } = await tenant.post('/v1/sandboxes', request, running);
      expect(body.status).toBe('running');
      expect(await execIn(body.id, 'ls', '/sys/class/net')).toMatch(/^lo\s*$/);
    } finally {
      await end(bare, tenant);
    }
  });

  test('include those of the gateway without iproute2, while rules by address hold', async () => {
    const path = process.env['PATH'];
    const programs = mkdtempSync('/tmp/sandkeep-programs-');
    for (const program of ['nft', 'nsenter', 'unshare', 'mount', 'umount'])
      symlinkSync(sh(`command -v ${program}`).trim(), join(programs, program));
    const starting = startWith({}, () => (process.env['PATH'] = programs));
    const bare = await starting.finally(() => {
      process.env['PATH'] = path;
      rmSync(programs, { recursive: true });
    });
    const tenant = await bare.newOrg();
    try {
      expect(bare.runtime.description).toContain('without a gateway, because the program ip is missing');
      const rule = { direction: 'egress', action: 'allow', destination: { domain: 'one.example' } };
      const refused: [field: string, network: object][] = [
        ['network.policy.rules[0].destination.domain', { policy: { rules: [rule] } }],
        ['network.dns', { dns: { nameservers: ['9.9.9.9'] } }],
        ['network.tls', { tls: { enabled: true } }],
      ];
      for (const [field, network] of refused) {
        const { status, body } = await tenant.post('/v1/sandboxes', { ...request, network });
        expect([status, body.error?.details], JSON.stringify(body)).toEqual([400, { field }]);
      }
      const byAddress = withRules([{ ...rule, destination: { cidr: '192.0.2.1' } }]);
      const { body } = await tenant.post('/v1/sandboxes', { ...request, ...byAddress }, running);
      expect(body.status, JSON.stringify(body)).toBe('running');
    } finally {
      await end(bare, tenant);
    }
  });
});
