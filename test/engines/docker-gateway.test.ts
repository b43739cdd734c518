import { randomUUID } from 'node:crypto';
import { mkdtempSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { GatewayServices } from '../../src/engine/definition.js';
import type { Denial } from '../../src/gateway/protocol.js';
import { DockerRuntime } from '../../src/engines/docker/runtime.js';
import type { NetworkPolicy, Rule } from '../../src/network-policy/schema.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { VolumeStore } from '../../src/volumes/storage/store.js';
import { describeDocker, docker, execIn, IMAGE, makeImage, SOCKET } from '../support/docker.js';
import {
  expectReached,
  LINK_LOCAL,
  makeWorld,
  METADATA,
  pidOf,
  PRIVATE,
  PUBLIC,
  reaches,
  removeWorld,
  RESOLVER,
  WORLD,
} from '../support/docker-network.js';
import { describeNetns, NetnsPeer, nft, sh } from '../support/netns.js';
import { until } from '../support/polling.js';
import { GATED as BASE, runSpecOf } from '../support/run-spec.js';

const instanceId = randomUUID();
const HOLDER = `sandkeep-gateway-${instanceId}`;
const GATEWAY = '169.254.7.53';
const NAME = 'www.allowed.example';
const NEVER = new AbortController().signal;

const GATED = { ...BASE, dns: { ...BASE.dns, rebindProtection: false } };
const ANY = { direction: 'egress', destination: 'any', action: 'allow' } satisfies Rule;
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
      makeWorld({ hasMetadata: false });
      // A UDP server would answer from the address of its interface.
      nft(
        WORLD,
        'table inet replies { chain answers { type nat hook prerouting priority -101; meta l4proto udp redirect; }; }',
      );
      world = await NetnsPeer.start(WORLD, [53, 443, 784, 853, 5353, 5355, 8080, 8853], PUBLIC);
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
      const spec = runSpecOf(IMAGE, { networkPolicy: policy, gated: GATED, ...more });
      specs.set(sandboxId, spec);
      const ids = { orgId: randomUUID(), sandboxId, runId: randomUUID(), name: 'gated' };
      await runtime.start({ ...ids, spec, secrets: { registry: null, values: {} } }, NEVER);
      return sandboxId;
    }

    const lookUp = (id: string, ...args: string[]) => execIn(id, 'busybox', 'nslookup', '-type=a', ...args);
    /** 0: it does not run. */
    const gatewayPid = async () => {
      const found = sh(`pgrep -f '^sandkeep-gateway .*/proc/self/fd/' || true`).split('\n').filter(Boolean);
      const holder = await docker
        .getContainer(HOLDER)
        .inspect()
        .catch(() => undefined);
      const namespace = holder && namespaceOf(holder.State.Pid);
      return Number(found.find((pid) => namespaceOf(pid) === namespace) ?? 0);
    };
    const namespaceOf = (pid: string | number) => sh(`readlink /proc/${pid}/ns/net || true`).trim();

    /**
     * The ports on which PUBLIC answers a process in the namespace of the sandbox. It waits until `count` have
     * answered, and then for one more.
     */
    const reachedByUdp = async (id: string, ports: readonly number[], count: number): Promise<number[]> => {
      const script = `
        const { createSocket } = require("node:dgram");
        const reached = [];
        let isOver = false;
        const finish = () => {
          if (isOver || reached.length < ${count}) return;
          isOver = true;
          setTimeout(() => { console.log(JSON.stringify(reached.sort())); process.exit(); }, 1_500);
        };
        for (const port of ${JSON.stringify(ports)}) {
          const socket = createSocket("udp4").on("error", () => undefined);
          socket.on("message", () => finish(reached.push(port)));
          socket.send("hello", port, "${PUBLIC}", () => undefined);
        }
        finish();
        setTimeout(() => { console.log(JSON.stringify(reached.sort())); process.exit(); }, 60_000);
      `;
      const enter = `nsenter --net=/proc/${await pidOf(id)}/ns/net`;
      return JSON.parse(sh(`exec ${enter} ${process.execPath} -e '${script}'`));
    };

    test('runs without rights, in a namespace of its own', async () => {
      const id = await start({ rules: BY_DOMAIN });
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
      await expectReached(id, PUBLIC, 8080);
      expect(await reaches(id, PRIVATE, 8080)).toBe(false);
      expect(await reaches(other, PUBLIC, 8080)).toBe(false);
      expect(await lookUp(id, 'www.other.example')).toContain('REFUSED');
      // Other resolvers know no name.
      expect(await lookUp(id, NAME, RESOLVER)).toContain('NXDOMAIN');
    });

    test('refuses other ways to names, and QUIC of a domain', async () => {
      const id = await start({ rules: [...BY_DOMAIN, ANY] });
      expect(await lookUp(id, NAME)).toContain(PUBLIC);
      expect(await reachedByUdp(id, [8080, 784, 853, 5353, 5355, 8853], 1)).toEqual([8080]);
      const byName = await start({ rules: BY_DOMAIN });
      expect(await reachedByUdp(byName, [8080], 0)).toEqual([]);
      expect(await lookUp(byName, NAME)).toContain(PUBLIC);
      expect(await reachedByUdp(byName, [8080, 443], 1)).toEqual([8080]);
    });

    test('leaves connections by domain to the kernel where the policy is not strict', async () => {
      const id = await start({ rules: BY_DOMAIN }, { gated: { ...GATED, strict: false } });
      expect(await reaches(id, PUBLIC, 8080)).toBe(false);
      expect(await lookUp(id, NAME)).toContain(PUBLIC);
      await expectReached(id, PUBLIC, 8080);
      const sets = sh(`nsenter --net=/proc/${await pidOf(id)}/ns/net nft list set inet sandkeep d0`);
      expect(sets).toMatch(new RegExp(`${PUBLIC} timeout \\S+ expires`));
    });

    test('answers no name where the policy opens none', async () => {
      const id = await start({ rules: [{ ...ANY, destination: { cidr: `${PUBLIC}/32` } }] });
      expect(await lookUp(id, NAME)).not.toContain(PUBLIC);
      await expectReached(id, PUBLIC, 8080);
    });

    test('is back after its kill, and its sandboxes go on', async () => {
      const id = await start({ rules: BY_DOMAIN });
      expect(await lookUp(id, NAME)).toContain(PUBLIC);
      const pid = await gatewayPid();
      process.kill(pid, 'SIGKILL');
      await until(gatewayPid, (now) => now > 0 && now !== pid, 5_000);
      await until(
        () => lookUp(id, NAME),
        (told) => told.includes(PUBLIC),
        10_000,
      );
      await expectReached(id, PUBLIC, 8080);
    });

    test('comes back when its namespace is removed by force', async () => {
      const id = await start({ rules: BY_DOMAIN });
      await docker.getContainer(HOLDER).remove({ force: true });
      // The program in the lost namespace still answers for a moment.
      await until(gatewayPid, (now) => now > 0, 20_000);
      await until(
        () => lookUp(id, NAME),
        (told) => told.includes(PUBLIC),
        30_000,
      );
      await expectReached(id, PUBLIC, 8080);
    });

    test('ends with its service, and stays closed until the next one', async () => {
      const id = await start({ rules: BY_DOMAIN });
      expect(await lookUp(id, NAME)).toContain(PUBLIC);
      term.valid = false;
      await runtime.close();
      expect(await gatewayPid()).toBe(0);
      expect(await reaches(id, PUBLIC, 8080)).toBe(false);
      await serve();
      await until(
        () => lookUp(id, NAME),
        (told) => told.includes(PUBLIC),
        30_000,
      );
      await expectReached(id, PUBLIC, 8080);
    });

    test('bounds the flows of a sandbox, and gives its interface an address and a size', async () => {
      const id = await start(
        { rules: [ANY] },
        {
          gated: null,
          networkLimits: { tcp: null, udp: 2 },
          networkInterface: { mac: '02:42:0a:0b:0c:0d', mtu: 1_280, ipv4: null },
        },
      );
      expect(await reachedByUdp(id, [8080, 443, 853], 2)).toHaveLength(2);
      const link = await execIn(id, 'busybox', 'ip', 'link', 'show', 'dev', 'eth0');
      expect(link).toContain('mtu 1280');
      expect(link).toContain('02:42:0a:0b:0c:0d');
      expect(await execIn(id, 'ls', '/sys/class/net')).not.toContain('gw0');
    });

    test('asks the name servers of a specification, and guarded ones for nobody', async () => {
      const ask = async (nameserver: string, rules: Rule[] = []) => {
        const dns = { ...GATED.dns, nameservers: [nameserver] };
        const id = await start({ rules: [...BY_DOMAIN, ...rules] }, { gated: { ...GATED, dns } });
        return lookUp(id, NAME);
      };
      expect(await ask(PUBLIC)).toContain(`Address: ${PUBLIC}`);
      // The policy allows nothing private without a rule, and a name server is no way past it.
      expect(await ask(PRIVATE)).toContain('SERVFAIL');
      await until(
        async () => Promise.resolve(denials),
        (found) => found.some(({ reason }) => reason.includes(`may not ask the name server ${PRIVATE}`)),
      );
      const opened: Rule = { direction: 'egress', destination: { cidr: PRIVATE }, action: 'allow' };
      expect(await ask(PRIVATE, [opened])).toContain(`Address: ${PUBLIC}`);
      for (const guarded of [METADATA, LINK_LOCAL, '127.0.0.1', '172.17.0.1'])
        expect(await ask(guarded, [ANY])).toContain('SERVFAIL');
    });
  });
});
