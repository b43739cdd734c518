import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeDocker } from '../support/docker.js';
import { makeClientImage } from '../support/internet/client-image.js';
import { domainPolicies, NAMES, passes, resolves } from '../support/internet/domain-policy-oracle.js';
import { GatedService } from '../support/internet/gated-service.js';
import { Internet } from '../support/internet/internet.js';
import { makePackages, NPM_HOST, type Packages } from '../support/internet/packages.js';
import { describeNetns } from '../support/netns.js';
import { until } from '../support/polling.js';
import { prepareImages } from '../support/prepare-images.js';

const NUMBER = 1;
const at = (last: number) => `45.13.${NUMBER}.${last}`;
/** `api.test` and `neighbour.test` share an address. */
const [SHARED, SUFFIX, DENIED, SHORT] = [at(10), at(11), at(12), at(13)];
const [ALIASED, OVER_HTTPS, BY_ADDRESS, PACKAGES] = [at(14), at(15), at(20), at(30)];

const allow = (destination: unknown, more: object = {}) => ({
  direction: 'egress',
  action: 'allow',
  destination,
  ...more,
});
const RULES = [
  { direction: 'egress', action: 'deny', destination: { domain: 'denied.suffix.test' } },
  allow({ domain: 'api.test' }),
  allow({ domain_suffix: 'suffix.test' }),
  allow({ domain: 'short.test' }),
  allow({ domain: 'alias.test' }),
  allow({ domain_suffix: 'packages.test' }, { ports: [{ start: 443, end: 443 }] }),
  allow({ domain_suffix: 'rebind.test' }),
];

/** Random ones. Their seed is printed. */
const POLICIES = 12;
const AT_ONCE = 3;
/** Resolves names, then makes the connections, and prints the outcomes. Runs inside the sandbox. */
const PROGRAM = `
import { lookup } from 'node:dns/promises';
import { connect } from 'node:net';
import { connect as connectTls } from 'node:tls';
const { resolved, tries } = JSON.parse(process.env.TASK);
const names = {};
for (const name of resolved) names[name] = await lookup(name).then(() => true, () => false);
const outcomes = await Promise.all(tries.map(({ kind, address, port, name }) => new Promise((resolve) => {
  const end = (outcome) => { socket.destroy(); resolve(outcome); };
  const options = { host: address, port, rejectUnauthorized: false, ...(name && kind === 'tls' ? { servername: name } : {}) };
  const socket = kind === 'tls' ? connectTls(options, () => end(true)) : connect(options);
  socket.on('error', () => end(false)).on('close', () => end(false)).setTimeout(4_000, () => end(false));
  if (kind === 'http') socket.write('GET / HTTP/1.1\\r\\nHost: ' + name + '\\r\\n\\r\\n');
  if (kind === 'raw') socket.write('\\0hello');
  if (kind !== 'tls') socket.on('data', (data) => end(!String(data).includes(' 403 ')));
})));
console.log(JSON.stringify({ names, outcomes }));
process.exit(0);
`;

interface Outcome {
  names: Record<string, boolean>;
  outcomes: boolean[];
}

describeDocker('rules by domain', () => {
  describeNetns('with the firewall tools', () => {
    let packages: Packages;
    let internet: Internet;
    let service: GatedService;
    let id: string;
    let trust: string;
    const sh = async (script: string, sandbox = id) => service.sh(sandbox, `${trust}; ${script}`);
    const node = async (program: string, sandbox = id) => service.node(sandbox, program);

    prepareImages(makeClientImage);
    beforeAll(async () => {
      packages = makePackages();
      internet = await Internet.start({
        number: NUMBER,
        zone: (address) => ({
          ...Object.fromEntries(
            Object.entries(NAMES).map(([name, last]) => [name, { addresses: [address(last)] }]),
          ),
          'api.test': { addresses: [SHARED] },
          'neighbour.test': { addresses: [SHARED] },
          'suffix.test': { addresses: [SUFFIX] },
          'deep.under.suffix.test': { addresses: [SUFFIX] },
          'denied.suffix.test': { addresses: [DENIED] },
          'notsuffix.test': { addresses: [SUFFIX] },
          'short.test': { addresses: [SHORT], ttl: 1 },
          'alias.test': { alias: 'real.elsewhere.test' },
          'real.elsewhere.test': { addresses: [ALIASED] },
          'private.rebind.test': { addresses: ['10.211.1.1'] },
          'loopback.rebind.test': { addresses: ['127.0.0.1'] },
          'literal.test': { addresses: [BY_ADDRESS] },
          'resolver.test': { addresses: [OVER_HTTPS] },
          [NPM_HOST]: { addresses: [PACKAGES] },
          'pip.packages.test': { addresses: [PACKAGES] },
          'git.packages.test': { addresses: [PACKAGES] },
        }),
        files: {
          [NPM_HOST]: packages.npm,
          'pip.packages.test': packages.pip,
          'git.packages.test': packages.git,
        },
      });
      service = await GatedService.start(internet);
      id = await service.create('gated', { policy: { rules: RULES } });
      trust = await service.trust(id);
    });
    afterAll(async () => {
      await service?.close();
      await internet?.close();
      packages?.remove();
    });

    const hello = 'hello from api.test';
    test.each([
      ['curl', 'curl -sS https://api.test/', hello],
      ['curl with HTTP/1.1', 'curl -sS --http1.1 https://api.test/', hello],
      ['curl without TLS', 'curl -sS http://api.test/', hello],
      [
        'curl by a name below a suffix',
        'curl -sS https://deep.under.suffix.test/',
        'hello from deep.under.suffix.test',
      ],
      ['curl by the apex of a suffix', 'curl -sS https://suffix.test/', 'hello from suffix.test'],
      ['curl by an alias', 'curl -sS https://alias.test/', 'hello from alias.test'],
      ['requests', `python3 -c 'import requests; print(requests.get("https://api.test/").text)'`, hello],
      ['httpx', `python3 -c 'import httpx; print(httpx.get("https://api.test/").text)'`, hello],
      [
        'httpx with HTTP/2',
        `python3 -c 'import httpx; r = httpx.Client(http2=True).get("https://api.test/"); print(r.http_version, r.text)'`,
        `HTTP/2 ${hello}`,
      ],
      ['fetch', `node -e 'fetch("https://api.test/").then((r) => r.text()).then(console.log)'`, hello],
      ['Go', '/opt/clients/go-get https://api.test/', hello],
      ['musl', '/opt/clients/resolve-musl api.test 443', `connected: ${SHARED}`],
      ['glibc', '/opt/clients/resolve-glibc api.test 443', `connected: ${SHARED}`],
      [
        'Java',
        `cd /tmp && keytool -importcert -noprompt -alias a -file authority.pem -keystore a.p12 -storepass changeit 2>/dev/null
         java -Djavax.net.ssl.trustStore=a.p12 -Djavax.net.ssl.trustStorePassword=changeit -cp /opt/clients Get https://api.test/`,
        hello,
      ],
      [
        'openssl',
        'echo | openssl s_client -connect api.test:443 -servername api.test -verify_return_error',
        'CONNECTED',
      ],
      [
        'git',
        'cd /tmp && git clone -q https://git.packages.test/hello.git && cat hello/README',
        'hello from git',
      ],
      [
        'pip',
        `pip install -q --break-system-packages --target /tmp/pip --index-url https://pip.packages.test/simple hello
         PYTHONPATH=/tmp/pip python3 -m hello`,
        'hello from a wheel',
      ],
      [
        'npm',
        `mkdir /tmp/app && cd /tmp/app && npm install --silent --registry https://${NPM_HOST} hello && node node_modules/hello`,
        'hello from npm',
      ],
    ])('reach an allowed name by %s', async (_, script, expected) => {
      expect(await sh(script)).toContain(expected);
    });

    test('open no neighbour on a shared address', async () => {
      // The sandbox knows the address from the allowed name.
      await sh('curl -sS https://api.test/');
      await internet.contacts();
      const requests = await internet.requests();
      expect(requests.length).toBeGreaterThan(0);
      const tries = [
        `curl -sSk --resolve neighbour.test:443:${SHARED} https://neighbour.test/`,
        `curl -sSk --http2-prior-knowledge --resolve neighbour.test:8081:${SHARED} http://neighbour.test:8081/`,
        // Without a server name.
        `curl -sSk https://${SHARED}/`,
        `echo | openssl s_client -connect ${SHARED}:443 -noservername`,
        // Neither TLS nor HTTP on a port of theirs.
        `node -e 'const s = require("net").connect(443, "${SHARED}", () => s.write("\\0hello")); s.on("close", () => console.log("closed"))'`,
      ];
      for (const script of tries)
        expect(await sh(script), script).not.toMatch(/hello from|BEGIN CERTIFICATE/);
      expect(await internet.requests()).toEqual([]);
      // A second request on a connection that was allowed for another name.
      const second = await node(`
        import { connect } from 'node:net';
        const socket = connect(80, 'api.test');
        const head = (host) => 'GET / HTTP/1.1\\r\\nHost: ' + host + '\\r\\n\\r\\n';
        socket.write(head('api.test') + head('neighbour.test'));
        socket.on('data', (data) => console.log(String(data))).on('error', () => process.exit());
        let text = '';
        socket.on('data', (data) => {
          text += data;
          if (!text.includes('hello from api.test')) return;
          setTimeout(() => socket.write(head('neighbour.test')), 300);
          setTimeout(() => process.exit(), 1_500);
        });
        setTimeout(() => process.exit(), 60_000);
      `);
      expect(second).toContain('hello from api.test');
      expect(second).not.toContain('hello from neighbour.test');
      const streams = await node(`
        import { connect } from 'node:http2';
        const session = connect('http://api.test:8081').on('error', () => process.exit());
        for (const authority of ['api.test', 'neighbour.test']) {
          const stream = session.request({ ':path': '/', ':authority': authority + ':8081' });
          stream.on('data', (data) => console.log(String(data))).on('error', () => undefined);
          await new Promise((resolve) => stream.on('close', resolve));
        }
        process.exit();
      `);
      expect(streams).not.toContain('hello from neighbour.test');
      const answer = await sh(`curl -sS -w ' %{http_code}' -H 'Host: neighbour.test' http://api.test/`);
      expect(answer).toMatch(/ 403$/);
      expect(JSON.parse(answer.slice(0, -4))).toMatchObject({
        code: 'network_policy_denied',
        domain: 'neighbour.test',
      });
      await service.untilDenied(id, ({ name }) => name === 'neighbour.test');
    });

    test('refuse a denied name, and say so', async () => {
      const codes = await node(`
        import { Resolver } from 'node:dns/promises';
        const resolver = new Resolver();
        for (const name of ['neighbour.test', 'denied.suffix.test', 'notsuffix.test', 'missing.suffix.test'])
          console.log(name, await resolver.resolve4(name).catch(({ code }) => code));
        console.log('v6', await resolver.resolve6('api.test').catch(({ code }) => code));
        for (const name of ['private.rebind.test', 'loopback.rebind.test'])
          console.log(name, await resolver.resolve4(name).catch(({ code }) => code));
      `);
      const lines = Object.fromEntries(codes.split('\n').map((line) => line.split(' ')));
      expect(lines).toMatchObject({
        'neighbour.test': 'EREFUSED',
        'denied.suffix.test': 'EREFUSED',
        'notsuffix.test': 'EREFUSED',
        'missing.suffix.test': 'ENOTFOUND',
        v6: 'ENODATA',
      });
      for (const name of ['private', 'loopback']) expect(lines[`${name}.rebind.test`]).toMatch(/^E[A-Z]+$/);
      await service.untilDenied(id, ({ name }) => name === 'denied.suffix.test');
    });

    test('leave no way around the names', async () => {
      await internet.questions();
      await internet.contacts();
      const outcome = await node(`
        import { lookup, Resolver } from 'node:dns/promises';
        import { createSocket } from 'node:dgram';
        import { connect } from 'node:net';
        const resolver = new Resolver({ timeout: 30_000, tries: 1 });
        resolver.setServers(['${internet.resolver}']);
        console.log('another resolver', await resolver.resolve4('api.test').catch(({ code }) => code));
        const known = await lookup('api.test').then(({ address }) => address);
        for (const [port, address] of [[443, known], [784, known], [853, known], [5353, known], [7, '${DENIED}'], [7, known]]) {
          const socket = createSocket('udp4');
          const answered = await new Promise((resolve) => {
            socket.on('message', () => resolve('answered')).on('error', () => resolve('refused'));
            socket.send('x', port, address, (error) => error && resolve('refused'));
            // The last attempt gets an answer.
            setTimeout(resolve, port === 7 && address === known ? 60_000 : 300, 'silent');
          });
          socket.close();
          console.log('udp', port, address, answered);
        }
        for (const [port, address] of [
          [853, '${SHARED}'], [443, '${DENIED}'], [7, '${DENIED}'],
          // The listeners of the gateway, without the way through the kernel.
          [15001, '169.254.7.53'], [5300, '169.254.7.53'], [22, '169.254.7.53'],
        ]) {
          const socket = connect({ port, host: address, timeout: 1_000 });
          console.log('tcp', port, await new Promise((resolve) => {
            socket.on('connect', () => socket.write('x')).on('data', () => resolve('answered'));
            socket.on('error', ({ code }) => resolve(code)).on('timeout', () => resolve('silent'));
          }));
        }
        process.exit(0);
      `);
      expect(outcome).toContain('another resolver ENOTFOUND');
      // Only the protocol of an allowed name that cannot be QUIC, which shows no name.
      expect(outcome.match(/.* answered/g)).toEqual([`udp 7 ${SHARED} answered`]);
      expect((await internet.questions()).filter((question) => !question.includes(' api.test '))).toEqual([]);
      expect(await internet.contacts()).toEqual([`udp ${SHARED}:7`]);
    });

    test('judge a resolver over HTTPS by its name, and open nothing by its answers', async () => {
      const ask = 'curl -sSk -m 5 --doh-insecure --doh-url https://resolver.test/dns-query';
      // The policy of the first sandbox does not name it.
      await internet.requests();
      for (const given of ['', `--resolve resolver.test:443:${OVER_HTTPS}`])
        expect(await sh(`${ask} ${given} https://api.test/`)).not.toContain('hello');
      expect(await internet.requests()).toEqual([]);
      for (const strict of [true, false]) {
        const rules = [...RULES, allow({ domain: 'resolver.test' })];
        const other = await service.create(`over-https-${strict}`, { policy: { rules }, strict });
        await internet.questions();
        await internet.requests();
        for (const name of ['api.test', 'neighbour.test']) {
          const questions: string[] = [];
          // The limit of time may end one before it has asked.
          await until(
            async () => {
              expect(await service.sh(other, `${ask} https://${name}/`)).not.toContain('hello');
              questions.push(...(await internet.questions()));
              return questions;
            },
            (found) => found.includes(`A ${name} https`),
          );
        }
        const requests = await internet.requests();
        expect(new Set(requests.map(({ host }) => host))).toEqual(new Set(['resolver.test']));
        // The same name, resolved by the gateway.
        expect(await service.sh(other, 'curl -sSk https://api.test/')).toContain(hello);
      }
    });

    test('end with the lifetime of an answer, but not for open connections', async () => {
      const outcome = await node(`
        import { connect } from 'node:net';
        import { lookup } from 'node:dns/promises';
        import { setTimeout as sleep } from 'node:timers/promises';
        const echo = (socket, millis) => new Promise((resolve) => {
          socket.once('data', () => resolve('echo')).once('error', ({ code }) => resolve(code));
          setTimeout(resolve, millis, 'silent').unref();
          socket.write('\\0');
        });
        let address, open, first;
        // On a busy machine the lifetime of one second may end before the connection.
        for (const until = Date.now() + 120_000; first !== 'echo' && Date.now() < until;) {
          open?.destroy();
          ({ address } = await lookup('short.test'));
          open = connect(7, address).on('error', () => undefined);
          first = await echo(open, 10_000);
        }
        console.log('first', first);
        await sleep(2_500);
        console.log('open', await echo(open, 60_000));
        console.log('later', await echo(connect(7, address), 2_000));
        process.exit(0);
      `);
      expect(outcome.split('\n').slice(0, 2)).toEqual(['first echo', 'open echo']);
      expect(outcome).not.toContain('later echo');
    });

    test('pass protocols of their own ports by the name that was resolved', async () => {
      // The server speaks first, as that of SSH does.
      const script = `node -e 'const s = require("net").connect(22, "api.test"); s.once("data", (d) => { console.log(String(d)); s.destroy() })'`;
      expect(await sh(script)).toContain('SSH-2.0-internet');
    });

    test('go by the address alone without strict', async () => {
      const rules = [...RULES, allow({ cidr: `${BY_ADDRESS}/32` })];
      const loose = await service.create('loose', { policy: { rules }, strict: false });
      const literal = `curl -sSk --resolve literal.test:443:${BY_ADDRESS} https://literal.test/`;
      expect(await service.sh(loose, literal)).toContain('hello from literal.test');
      const direct = `curl -sSk -m 5 --resolve neighbour.test:443:${SHARED} https://neighbour.test/`;
      expect(await service.sh(loose, direct)).not.toContain('hello');
      expect(await service.sh(loose, 'curl -sSk https://api.test/')).toContain(hello);
      const patient = direct.replace('-m 5', '-m 100');
      expect(await service.sh(loose, patient)).toContain('hello from neighbour.test');
    });

    test('pass what an independent model says, for random policies', async () => {
      const seed = Number(process.env['SEED'] ?? Date.now() % 1_000_000);
      console.log(`random policies with domains: SEED=${seed}`);
      const cases = fc.sample(domainPolicies(`45.13.${NUMBER}`), { numRuns: POLICIES, seed });
      let next = 0;
      const worker = async () => {
        for (let index = next++; index < cases.length; index = next++) {
          const { policy, strict, resolved, tries } = cases[index]!;
          const id = await service.create(`random-${index}`, { policy, strict });
          const task = JSON.stringify({ resolved, tries });
          const ask = async (): Promise<Outcome> => {
            const program = PROGRAM.replaceAll(/["$\\]/g, '\\$&');
            return JSON.parse(
              await service.sh(id, `TASK='${task}' node --input-type=module -e "${program}"`),
            );
          };
          const expectedNames = Object.fromEntries(resolved.map((name) => [name, resolves(policy, name)]));
          const context = JSON.stringify({ seed, policy, strict, resolved });
          const known = new Map<string, string[]>();
          for (const name of resolved.filter((each) => expectedNames[each])) {
            const address = `45.13.${NUMBER}.${NAMES[name]}`;
            known.set(address, [...(known.get(address) ?? []), name]);
          }
          const expected = tries.map((attempt) => ({
            ...attempt,
            passes: passes(policy, strict, known, attempt),
          }));
          // Late answers of a busy machine are asked for again. A forbidden attempt never passes.
          await until(ask, ({ names, outcomes }) => {
            const told = tries.map((attempt, position) => ({ ...attempt, passes: outcomes[position]! }));
            const isLate = told.some((each, position) => !each.passes && expected[position]!.passes);
            const isLateName = resolved.some((name) => !names[name] && expectedNames[name]);
            if (isLate || isLateName) {
              for (const [position, { passes: passed }] of expected.entries())
                if (!passed) expect(told[position], context).toEqual(expected[position]);
              return false;
            }
            expect(names, context).toEqual(expectedNames);
            expect(told, context).toEqual(expected);
            return true;
          });
          await service.client.delete(`/v1/sandboxes/${id}`);
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, worker));
    });

    test('stop while the gateway is dead, and hold again within seconds', async () => {
      const before = service.gatewayPid()!;
      process.kill(before, 'SIGKILL');
      const around = `curl -sSk -m 1 --resolve neighbour.test:443:${SHARED} https://neighbour.test/`;
      expect(await sh(around)).not.toContain('hello');
      await until(
        async () => sh('curl -sS -m 5 https://api.test/'),
        (answer) => answer.includes(hello),
      );
      expect(service.gatewayPid()).not.toBe(before);
      expect(await sh(around)).not.toContain('hello');
    });

    test('hold again after a kill of the service', async () => {
      await service.restart('SIGKILL');
      await until(
        async () => sh('curl -sS -m 5 https://api.test/'),
        (answer) => answer.includes(hello),
      );
      expect(await sh(`curl -sSk -m 2 https://${SHARED}/`)).not.toContain('hello');
    });
  });
});
