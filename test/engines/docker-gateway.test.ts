import { randomUUID } from 'node:crypto';
import { mkdtempSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { GatewayServices } from '../../src/engine/definition.js';
import type { Denial } from '../../src/gateway/protocol.js';
import { DockerRuntime } from '../../src/engines/docker/runtime.js';
import type { NetworkPolicy, Rule } from '../../src/network-policy/schema.js';
import type { GatedNetwork, RunSpec } from '../../src/spec/run-spec.js';
import { VolumeStore } from '../../src/volumes/storage/store.js';
import { describeDocker, docker, execIn, IMAGE, makeImage, SOCKET } from '../support/docker.js';
import {
  makeWorld,
  PRIVATE,
  PUBLIC,
  reaches,
  removeWorld,
  RESOLVER,
  WORLD,
} from '../support/docker-network.js';
import { describeNetns, NetnsPeer, sh } from '../support/netns.js';

const instanceId = randomUUID();
const HOLDER = `sandkeep-gateway-${instanceId}`;
const GATEWAY = '169.254.7.53';
const NAME = 'www.allowed.example';
const NEVER = new AbortController().signal;

const GATED: GatedNetwork = {
  strict: true,
  dns: { nameservers: [], queryTimeoutMs: 5_000, rebindProtection: false },
  tls: {
    enabled: false,
    ports: [443],
    bypass: [],
    verifyUpstream: true,
    scopedVerify: [],
    authorities: [],
    blockQuic: true,
    cacheCapacity: 10,
    validityHours: 24,
  },
  secrets: [],
};
const BY_DOMAIN = [{ direction: 'egress', destination: { domain: NAME }, action: 'allow' }] satisfies Rule[];

describeDocker('the gateway of docker sandboxes', () => {
  describeNetns('with the firewall tools', () => {
    let world: NetnsPeer;
    let runtime: DockerRuntime;
    let term: { valid: boolean };
    const specs = new Map<string, RunSpec>();
    const denials: Denial[] = [];
    const services: GatewayServices = {
      authority: async () => ({ certificate: '', key: '' }),
      secrets: async () => ({ registry: null, values: {} }),
      specOf: async (_org, sandboxId) => specs.get(sandboxId),
      denied: (denial) => void denials.push(denial),
      flows: () => undefined,
    };
    const volumesDir = mkdtempSync('/tmp/sandkeep-gateway-');

    async function serve(): Promise<void> {
      runtime = await DockerRuntime.connect(instanceId, {
        socketPath: SOCKET,
        resolvers: [RESOLVER],
        volumes: new VolumeStore(volumesDir),
        gateway: services,
      });
      term = { valid: true };
      await runtime.takeOver(term);
    }

    beforeAll(async () => {
      makeImage();
      makeWorld();
      world = await NetnsPeer.start(WORLD, [53, 80, 8080]);
      await serve();
    });
    afterAll(async () => {
      for (const id of specs.keys()) await runtime.destroy(id);
      await runtime.close();
      await world.stop();
      removeWorld();
      const names = (await docker.listContainers({ all: true })).flatMap(({ Names }) => Names);
      expect(names).not.toContain(`/${HOLDER}`);
    });

    async function start(policy: NetworkPolicy | null, more: Partial<RunSpec> = {}): Promise<string> {
      const sandboxId = randomUUID();
      const spec: RunSpec = {
        image: IMAGE,
        pullPolicy: 'never',
        vcpus: 1,
        memoryMib: 64,
        diskMib: null,
        cmd: null,
        entrypoint: null,
        user: null,
        workdir: null,
        shell: null,
        scripts: {},
        env: [],
        labels: {},
        rlimits: [],
        mounts: [],
        patches: [],
        securityProfile: 'default',
        networkEnabled: true,
        networkPolicy: policy,
        gated: GATED,
        idleTimeoutSecs: null,
        maxDurationSecs: null,
        demands: [],
        ...more,
      };
      specs.set(sandboxId, spec);
      const ids = { orgId: randomUUID(), sandboxId, runId: randomUUID(), name: 'gated' };
      await runtime.start({ ...ids, spec, secrets: { registry: null, values: {} } }, NEVER);
      return sandboxId;
    }

    const lookUp = (id: string, ...args: string[]) => execIn(id, 'busybox', 'nslookup', '-type=a', ...args);
    const gatewayPid = async () =>
      Number(
        sh(`pgrep -f 'sandkeep-gateway.*/proc/self/fd/8' || true`)
          .split('\n')
          .find((pid) => pid !== '' && namespaceOf(pid) === namespaceOf(String(holderPid))) ?? 0,
      );
    let holderPid = 0;
    const namespaceOf = (pid: string) => sh(`readlink /proc/${pid}/ns/net || true`).trim();

    test('runs without rights, in a namespace of its own', async () => {
      const id = await start({ rules: BY_DOMAIN });
      holderPid = (await docker.getContainer(HOLDER).inspect()).State.Pid;
      const pid = await gatewayPid();
      expect(pid).toBeGreaterThan(0);
      const status = readFileSync(`/proc/${pid}/status`, 'utf8');
      expect(status).toMatch(/^Uid:\s+(1[89]\d{8})\s+\1\s+\1\s+\1$/m);
      expect(status).toMatch(/^Gid:\s+(1[89]\d{8})\s+\1\s+\1\s+\1$/m);
      expect(status).toMatch(/^Groups:\s*$/m);
      for (const set of ['Inh', 'Prm', 'Eff', 'Bnd', 'Amb'])
        expect(status).toMatch(new RegExp(`^Cap${set}:\\s+0{16}$`, 'm'));
      expect(status).toMatch(/^NoNewPrivs:\s+1$/m);
      expect(readFileSync(`/proc/${pid}/limits`, 'utf8')).toMatch(/^Max core file size\s+1\s+1\s/m);
      expect(await execIn(id, 'cat', '/etc/resolv.conf')).toBe(`nameserver ${GATEWAY}\n`);
      const held = await runtime.list();
      expect(held.map(({ sandboxId }) => sandboxId)).toEqual([id]);
    });

    test('opens what a name leads to, for the sandbox that resolved it', async () => {
      const id = await start({ rules: BY_DOMAIN });
      const other = await start({ rules: BY_DOMAIN });
      expect(await reaches(id, PUBLIC, 8080)).toBe(false);
      expect(await lookUp(id, NAME)).toContain(PUBLIC);
      expect(await reaches(id, PUBLIC, 8080)).toBe(true);
      expect(await reaches(id, PRIVATE, 8080)).toBe(false);
      expect(await reaches(other, PUBLIC, 8080)).toBe(false);
      expect(await lookUp(id, 'www.other.example')).toContain('REFUSED');
      // Other resolvers know no name.
      expect(await lookUp(id, NAME, RESOLVER)).toContain('NXDOMAIN');
    });
  });
});
