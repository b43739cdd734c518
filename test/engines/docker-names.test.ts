import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { Socket } from 'node:dgram';
import type { Server as TcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { serveTcp, serveUdp, type AnswerQuery } from '../../src/gateway/dns-listeners.js';
import type { Rule } from '../../src/network-policy/schema.js';
import { describeDocker, docker, SOCKET } from '../support/docker.js';
import { gatedNames, settingsOf } from '../support/gated-names.js';
import { CLIENTS, makeClientImage } from '../support/internet/client-image.js';
import { until } from '../support/polling.js';
import { prepareImages } from '../support/prepare-images.js';
import { a, alias, startNameServer, type Asked, type StandIn } from '../support/stand-in-resolver.js';

const run = promisify(execFile);
const ALLOW: Rule = { direction: 'egress', action: 'allow', destination: { domain_suffix: 'example.com' } };

/** The name server alone, before the resolvers of real C libraries and languages in a container. */
describeDocker('the resolver of gated sandboxes', () => {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-names-'));
  const network = `sandkeep-names-${randomUUID()}`;
  const asked: string[] = [];
  let gateway: string;
  let container: string;
  let names: ReturnType<typeof gatedNames>;
  let upstream: StandIn;
  let udp: Socket;
  let tcp: TcpServer;
  let http: Server;

  function tell({ name }: Asked) {
    const address = a('node.cdn.test', gateway);
    if (name === 'alias.example.com')
      return { answers: [alias(name, 'edge.cdn.test'), alias('edge.cdn.test', 'node.cdn.test'), address] };
    // Too long for UDP. Each of them leads to the server.
    if (name === 'many.example.com') return { answers: Array.from({ length: 60 }, () => a(name, gateway)) };
    if (name === 'none.example.com') return { rcode: 3 };
    return { answers: [a(name, gateway)] };
  }

  prepareImages(makeClientImage);
  beforeAll(async () => {
    await docker.createNetwork({ Name: network });
    const { IPAM } = (await docker.getNetwork(network).inspect()) as {
      IPAM: { Config: { Gateway: string }[] };
    };
    gateway = IPAM.Config[0]!.Gateway;
    upstream = await startNameServer(tell);
    const resolvConf = join(directory, 'resolv.conf');
    writeFileSync(resolvConf, `nameserver ${gateway}\n`);
    const made = await docker.createContainer({
      Image: CLIENTS,
      Cmd: ['sleep', '100000'],
      HostConfig: { NetworkMode: network, Binds: [`${resolvConf}:/etc/resolv.conf:ro`], Init: true },
    });
    await made.start();
    container = made.id;
    const { NetworkSettings } = await made.inspect();
    const dns = { nameservers: [`127.0.0.1:${upstream.port}`], rebindProtection: false };
    const address = NetworkSettings.Networks[network]!.IPAddress;
    names = gatedNames(settingsOf({ rules: [ALLOW] }, dns, { address }));
    const answer: AnswerQuery = (message, from, transport) => {
      asked.push(transport);
      return names.server.handle(message, from, transport);
    };
    udp = serveUdp(answer);
    tcp = serveTcp(answer);
    http = createServer((_request, response) => void response.end('here'));
    udp.bind(53, gateway);
    tcp.listen(53, gateway);
    http.listen(0, gateway);
    await Promise.all([udp, tcp, http].map((server) => once(server, 'listening')));
  });

  beforeEach(() => void asked.splice(0));

  afterAll(async () => {
    udp?.close();
    tcp?.close();
    http?.close();
    upstream?.close();
    await docker.getContainer(container).remove({ force: true });
    await docker.getNetwork(network).remove();
    rmSync(directory, { recursive: true });
  });

  async function inContainer(...command: string[]): Promise<{ text: string; millis: number }> {
    const began = performance.now();
    const ended = await run('docker', ['-H', `unix://${SOCKET}`, 'exec', container, ...command]).catch(
      (error: { stdout: string; stderr: string }) => error,
    );
    return { text: `${ended.stdout}${ended.stderr}`.trim(), millis: performance.now() - began };
  }

  function port(): string {
    return `${(http.address() as { port: number }).port}`;
  }

  test.each(['glibc', 'musl'])('getaddrinfo of %s resolves, follows aliases, and fails', async (libc) => {
    const resolve = (name: string) => inContainer(`/opt/clients/resolve-${libc}`, name, port());
    for (const name of ['www.example.com', 'alias.example.com', 'many.example.com'])
      expect((await resolve(name)).text).toBe(`connected: ${gateway}`);
    expect(asked.includes('tcp')).toBe(libc === 'glibc');
    // A resolver that gets no answer waits for five seconds at least. A busy machine may need as long for an answer.
    const failSoon = (name: string) =>
      until(
        async () => {
          const failed = await resolve(name);
          expect(failed.text).toMatch(/^unresolved: /);
          return failed;
        },
        ({ millis }) => millis < 4_500,
      );
    await failSoon('none.example.com');
    // That of musl takes a refusal for no answer.
    if (libc === 'glibc') await failSoon('denied.test');
    else expect((await resolve('denied.test')).text).toMatch(/^unresolved: /);
    expect(names.denials.at(-1)).toMatchObject({ name: 'denied.test' });
  });

  test('languages with a resolver of their own get the same answers', async () => {
    const url = `http://many.example.com:${port()}/`;
    const node = `const { promises: dns } = require('dns'); (async () => {
      console.log((await dns.resolve4('many.example.com')).length, await dns.resolve6('www.example.com').catch((e) => e.code),
        await dns.resolve4('denied.test').catch((e) => e.code), (await dns.lookup('alias.example.com', { all: true })).length);
    })()`;
    const python = `import socket
print(len({each[4][0] for each in socket.getaddrinfo('many.example.com', 80)}))`;
    const [go, curl, java, fromNode, fromPython] = await Promise.all([
      inContainer('/opt/clients/go-get', url),
      inContainer('curl', '-s', url),
      inContainer('java', '-cp', '/opt/clients', 'Get', url),
      inContainer('node', '-e', node),
      inContainer('python3', '-c', python),
    ]);
    expect(fromNode.text).toBe('60 ENODATA EREFUSED 1');
    expect(fromPython.text).toBe('1');
    for (const { text } of [go, curl, java]) expect(text).toContain('here');
  });
});
