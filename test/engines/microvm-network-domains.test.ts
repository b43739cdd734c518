import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { VmNetworks, type VmNetworkOptions } from '../../src/engines/microvm/network/vm-networks.js';
import type { Run } from '../../src/engine/runtime.js';
import { makeAuthority } from '../../src/gateway/intercept/certificate.js';
import type { Denial } from '../../src/gateway/protocol.js';
import { Internet } from '../support/internet/internet.js';
import { describeNetns } from '../support/netns.js';
import { until } from '../support/polling.js';
import { GATED, runSpecOf } from '../support/run-spec.js';
import { NO_SERVICES, TapGuest } from '../support/tap-guest.js';

const execute = promisify(execFile);
const NUMBER = 9;
const at = (last: number) => `45.13.${NUMBER}.${last}`;
const SPEC = runSpecOf('none', {
  gated: GATED,
  networkPolicy: {
    rules: [{ direction: 'egress', destination: { domain: 'api.test' }, action: 'allow' }],
  },
});

describeNetns('the gateway of virtual machines', () => {
  const run: Run = {
    orgId: randomUUID(),
    sandboxId: randomUUID(),
    runId: randomUUID(),
    name: 'one',
    spec: SPEC,
    secrets: { registry: null, values: {} },
  };
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-networks-'));
  const denials: Denial[] = [];
  let internet: Internet;
  let options: VmNetworkOptions;
  let networks: VmNetworks;
  let guest: TapGuest;
  let link: string;
  let keeper: ChildProcess;

  beforeAll(async () => {
    internet = await Internet.start({
      number: NUMBER,
      // Both have one address.
      zone: (address) => ({
        'api.test': { addresses: [address(10)] },
        'neighbour.test': { addresses: [address(10)] },
        'other.test': { addresses: [address(11)] },
      }),
    });
    const authority = makeAuthority('test');
    options = {
      instanceId: randomUUID(),
      directory,
      subnet: undefined,
      resolvers: [internet.resolver],
      openableGroups: [],
      bandwidthMbits: 250,
      services: {
        ...NO_SERVICES,
        authority: async () => authority,
        specOf: async (orgId, sandboxId) =>
          orgId === run.orgId && sandboxId === run.sandboxId ? SPEC : undefined,
        denied: (denial) => void denials.push(denial),
      },
    };
    networks = await VmNetworks.open(options);
    networks.takeOver({ valid: true });
    await networks.note([], performance.now());
    const network = (await networks.make(run))!;
    link = network.link;
    keeper = spawn('cat', [], { stdio: ['pipe', 'ignore', 'inherit', 'ignore', network.namespace] });
    guest = await TapGuest.start(network.namespace, network.guest);
  });
  afterAll(async () => {
    await guest?.stop();
    keeper?.stdin!.end();
    await networks?.note([], performance.now());
    await networks?.close();
    await internet?.close();
    rmSync(directory, { recursive: true });
  });

  /** The status of an answer, or the exit code of curl, below 0. */
  async function get(url: string, ...more: string[]): Promise<number> {
    const curl = ['curl', '-s', '-o', '/dev/null', '-w', '%{http_code}', '--max-time', '60', ...more, url];
    try {
      // This process serves the gateway, so it must not wait.
      return Number((await execute('ip', ['netns', 'exec', guest.name, ...curl])).stdout);
    } catch (error) {
      return -(error as { code: number }).code;
    }
  }

  test('answers for allowed names, and leads connections to them alone', async () => {
    expect(networks.capabilities).toEqual(expect.arrayContaining(['network_domains', 'network_dns']));
    expect(await get('http://api.test/')).toBe(200);
    expect(await get('https://api.test/', '--insecure')).toBe(200);
    // 6: the name has no address.
    expect(await get('http://other.test/')).toBe(-6);
    expect(await get(`http://${at(11)}/`)).toBe(403);
    // Another name of the same address.
    expect(await get('http://neighbour.test/', '--resolve', `neighbour.test:80:${at(10)}`)).toBe(403);
    await until(
      async () => Promise.resolve(denials.map(({ name }) => name)),
      (names) => names.includes('neighbour.test'),
    );
  });

  test('serves the virtual machines of an earlier process of the service', async () => {
    await networks.close();
    networks = await VmNetworks.open(options);
    networks.takeOver({ valid: true });
    expect(await get('http://api.test/', '--max-time', '1')).toBeLessThan(0);
    const { orgId, sandboxId } = run;
    await networks.note([{ orgId, sandboxId, link, path: `/proc/${keeper.pid}/fd/4` }], performance.now());
    await until(
      async () => get('http://api.test/'),
      (status) => status === 200,
    );
    expect(await get(`http://${at(11)}/`)).toBe(403);
  });
});
