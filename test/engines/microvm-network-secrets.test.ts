import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { GatewayServices } from '../../src/engine/definition.js';
import type { Denial } from '../../src/gateway/protocol.js';
import type { Client } from '../support/client.js';
import { sh as shInside } from '../support/guest.js';
import { Internet } from '../support/internet/internet.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { destroyAll, IMAGE, makeMicrovmDirectory, onMicrovm } from '../support/microvm/service.js';
import { describeNetns } from '../support/netns.js';
import { until } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

const NUMBER = 19;
const CURL = '/usr/bin/curl';
const at = (last: number) => `45.13.${NUMBER}.${last}`;
const VALUE = `sk-live-${randomBytes(16).toString('hex')}`;
const NEXT_VALUE = `sk-next-${randomBytes(16).toString('hex')}`;

describeMicrovm('the secrets of the network of a virtual machine', () => {
  describeNetns('with the firewall tools', () => {
    const denials: Denial[] = [];
    let dataDir: string;
    let authority: Awaited<ReturnType<GatewayServices['authority']>>;
    let internet: Internet;
    let service: TestService;
    let client: Client;
    let opened: Awaited<ReturnType<TestService['runtime']['openGuest']>>;
    let id: string;
    beforeAll(async () => {
      internet = await Internet.start({
        number: NUMBER,
        zone: () => ({ 'api.test': { addresses: [at(10)] }, 'other.test': { addresses: [at(11)] } }),
      });
      dataDir = await makeMicrovmDirectory([CURL]);
      const options = { microvmResolvers: [internet.resolver] };
      service = await startTestService({
        runtime: async (instanceId, volumes, pool, gateway) => {
          const denied = (denial: Denial) => void denials.push(denial);
          authority = await gateway.authority();
          return onMicrovm(dataDir, { gateway: { ...gateway, denied } }, options).runtime!(
            instanceId,
            volumes,
            pool,
            gateway,
          );
        },
      });
      client = await service.newOrg();
      const { body } = await client.post(
        '/v1/sandboxes',
        {
          name: 'agent',
          image: { type: 'oci', reference: IMAGE },
          pull_policy: 'never',
          resources: { vcpus: 1, memory_mib: 192 },
          network: {
            policy: {
              rules: [{ direction: 'egress', action: 'allow', destination: { domain_suffix: 'test' } }],
            },
            secrets: {
              entries: [
                {
                  env_var: 'API_KEY',
                  value: VALUE,
                  placeholder: '$MSB_API_KEY',
                  allowed_hosts: [{ type: 'exact', value: 'api.test' }],
                },
              ],
            },
            tls: { enabled: true, upstream_ca_cert: [internet.authority.root] },
          },
        },
        { start: true, wait_for: 'running', wait_timeout: 120 },
      );
      expect(body.status, JSON.stringify(body)).toBe('running');
      id = body.id;
      opened = await service.runtime.openGuest(id);
    });
    afterAll(async () => {
      opened?.release();
      await destroyAll(service, client);
      await service?.close();
      await internet?.close();
      rmSync(dataDir, { recursive: true, force: true });
    });
    const inside = async (script: string): Promise<string> => shInside(opened.guest, script);
    /** The fields `authorization` of the requests that the servers saw. */
    const seen = async (): Promise<unknown[]> =>
      (await internet.requests()).map(
        ({ headers }) => headers.find(([name]) => name === 'authorization')?.[1],
      );
    // The TLS of busybox verifies nothing. Curl takes the authorities that its variable names.
    const get = async (url: string): Promise<string> =>
      inside(`curl -sS -i -m 100 -H "authorization: Bearer $API_KEY" ${url} 2>&1 || true`);

    test('have a placeholder in the sandbox, and their value at the servers that may have it', async () => {
      expect(await inside('echo $API_KEY')).toBe('$MSB_API_KEY');
      expect(await get('https://api.test/')).toMatch(/ 200 /);
      expect(await seen()).toEqual([`Bearer ${VALUE}`]);
      expect(await get('https://other.test/')).toMatch(/403/);
      expect(await seen()).toEqual([]);
      await until(
        async () => Promise.resolve(denials.map(({ name }) => name)),
        (names) => names.includes('other.test'),
      );
      expect(await inside('cat $CURL_CA_BUNDLE')).toContain(authority.certificate.trim());
    });

    test('change while the sandbox runs', async () => {
      const change = { secrets: [{ name: 'API_KEY', value: NEXT_VALUE }] };
      const { status, text } = await client.request('PUT', `/v1/sandboxes/${id}`, {
        body: change,
      });
      expect(status, text).toBe(200);
      expect(await get('https://api.test/')).toMatch(/ 200 /);
      expect(await seen()).toEqual([`Bearer ${NEXT_VALUE}`]);
    });
  });
});
