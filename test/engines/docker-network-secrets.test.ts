import { randomBytes } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runRow, whyMissing } from '../support/clients.js';
import { describeDocker } from '../support/docker.js';
import { CLIENTS, makeClientImage } from '../support/internet/client-image.js';
import { GatedService } from '../support/internet/gated-service.js';
import { Internet } from '../support/internet/internet.js';
import { makePackages, NPM_HOST, type Packages } from '../support/internet/packages.js';
import { memoryHolds, processesOf } from '../support/internet/memory.js';
import { run, runJson } from '../support/cli.js';
import { describeNetns } from '../support/netns.js';
import { until } from '../support/polling.js';
import { prepareImages } from '../support/prepare-images.js';
import { startReceiver, type Receiver } from '../support/webhook-receiver.js';

const NUMBER = 2;
const at = (last: number) => `45.13.${NUMBER}.${last}`;
const VALUE = `sk-live-${randomBytes(16).toString('hex')}`;
const BODY_VALUE = `body-${randomBytes(16).toString('hex')}`;
const TOKEN_VALUE = `token-${randomBytes(16).toString('hex')}`;
const GIT_HOST = 'git.packages.test';
const NEXT_VALUE = `sk-next-${randomBytes(16).toString('hex')}`;
const PLACEHOLDER = '$MSB_API_KEY';
const exact = (...hosts: string[]) => hosts.map((value) => ({ type: 'exact', value }));

describeDocker('secrets of the network', () => {
  describeNetns('with the firewall tools', () => {
    let internet: Internet;
    let service: GatedService;
    let packages: Packages;
    let receiver: Receiver;
    let id: string;
    const sh = async (script: string) => service.sh(id, script);

    prepareImages(makeClientImage);
    beforeAll(async () => {
      packages = makePackages();
      receiver = await startReceiver();
      internet = await Internet.start({
        number: NUMBER,
        zone: () => ({
          'api.test': { addresses: [at(10)] },
          'other.test': { addresses: [at(11)] },
          'untrusted.test': { addresses: [at(12)] },
          'misnamed.test': { addresses: [at(13)] },
          [NPM_HOST]: { addresses: [at(14)] },
          [GIT_HOST]: { addresses: [at(15)] },
        }),
        files: { [NPM_HOST]: packages.npm, [GIT_HOST]: packages.git },
        authorizations: {
          [NPM_HOST]: `Bearer ${TOKEN_VALUE}`,
          [GIT_HOST]: `Basic ${Buffer.from(`x-access-token:${TOKEN_VALUE}`).toString('base64')}`,
        },
        untrusted: ['untrusted.test'],
        misnamed: ['misnamed.test'],
      });
      service = await GatedService.start(internet, ['--webhook-allow', '127.0.0.1', '--webhook-http']);
      for (const format of ['sandkeep', 'cloudevents', 'ocsf']) {
        const hook = await service.client.post('/v1/webhooks', { url: receiver.url, format });
        expect(hook.status, hook.text).toBe(200);
      }
      id = await service.create('agent', {
        record: true,
        policy: { rules: [{ direction: 'egress', action: 'allow', destination: { domain_suffix: 'test' } }] },
        secrets: {
          entries: [
            {
              env_var: 'API_KEY',
              value: VALUE,
              placeholder: PLACEHOLDER,
              allowed_hosts: exact('api.test', 'untrusted.test', 'misnamed.test'),
              injection: { headers: true, basic_auth: true, query_params: true, body: false },
            },
            {
              env_var: 'BODY_KEY',
              value: BODY_VALUE,
              placeholder: 'placeholder-of-a-body',
              allowed_hosts: exact('api.test'),
              injection: { headers: false, basic_auth: false, query_params: false, body: true },
            },
            { env_var: 'TOKEN', value: TOKEN_VALUE, allowed_hosts: exact(NPM_HOST, GIT_HOST) },
          ],
        },
        tls: { upstream_ca_cert: [internet.authority.root] },
      });
    });
    afterAll(async () => {
      await service?.close();
      await internet?.close();
      await receiver?.close();
      packages?.remove();
    });

    const received = async () =>
      (await internet.requests()).map(({ host, url, headers, body }) => ({
        host,
        text: JSON.stringify([url, headers, body]),
      }));

    test.each([
      ['curl', 'curl -sS -H "authorization: Bearer $API_KEY" https://api.test/echo'],
      ['curl with HTTP/1.1', 'curl -sS --http1.1 -H "authorization: Bearer $API_KEY" https://api.test/echo'],
      [
        'requests',
        `python3 -c 'import os, requests; print(requests.get("https://api.test/echo", headers={"authorization": "Bearer " + os.environ["API_KEY"]}).text)'`,
      ],
      [
        'httpx with HTTP/2',
        `python3 -c 'import os, httpx; print(httpx.Client(http2=True).get("https://api.test/echo", headers={"authorization": "Bearer " + os.environ["API_KEY"]}).text)'`,
      ],
      [
        'fetch',
        `node -e 'fetch("https://api.test/echo", {headers: {authorization: "Bearer " + process.env.API_KEY}}).then((r) => r.text()).then(console.log)'`,
      ],
      ['Go', '/opt/clients/go-get https://api.test/echo'],
      ['Java', 'java -cp /opt/clients Get https://api.test/echo'],
    ])('are put in for %s, which sees only the placeholder', async (_, script) => {
      await internet.requests();
      const answer = await sh(script);
      expect(answer).toContain(`Bearer ${PLACEHOLDER}`);
      expect(answer).not.toContain(VALUE);
      const [request] = await internet.requests();
      expect(request?.headers).toContainEqual(['authorization', `Bearer ${VALUE}`]);
    });

    const NETWORK_OF_NODE =
      '(n) => n.policyFromBuilder(new NetworkPolicyBuilder().defaultDeny().egress((r) => r.tcp().port(80).allowDomain("api.test")))';
    const NETWORK_OF_PYTHON =
      'm.Network(policy=m.NetworkPolicy(rules=(m.Rule.allow(protocol=m.Protocol.TCP, port=80, destination=m.Destination.domain("api.test")),)))';
    const PROGRAMS = {
      node: `const { NetworkPolicyBuilder } = await import("microsandbox"); await Sandbox.builder("by-node").image("${CLIENTS}").cmd(["sleep", "1000000"]).network(${NETWORK_OF_NODE}).secret((s) => s.env("SDK_KEY").value("${VALUE}").allowHost("api.test").requireTlsIdentity(false)).create()`,
      python: `import microsandbox.types as m; await Sandbox.create("by-python", image="${CLIENTS}", cmd=["sleep", "1000000"], secrets=[m.Secret.env("SDK_KEY", value="${VALUE}", allow=["api.test"], require_tls_identity=False)], network=${NETWORK_OF_PYTHON})`,
    };

    for (const sdk of ['node', 'python'] as const) {
      const reason = whyMissing(sdk);
      const title = `the network that the official SDK of ${sdk} builds`;
      if (reason !== undefined) {
        test.skip(`${title} — SKIPPED: ${reason}`);
        continue;
      }
      test(`${title} lets one name through, with the value, and refuses another`, async () => {
        const { url } = service.served;
        const { key } = service.client;
        const variables = { MSB_BACKEND: 'cloud', MSB_API_URL: url, MSB_API_KEY: key, HOME: '/tmp' };
        expect(await runRow({ client: sdk, run: PROGRAMS[sdk] }, variables)).toEqual({ exit: 0, text: '' });
        const made = (await service.client.get(`/v1/sandboxes/by-name/by-${sdk}`)).body.id;
        expect(await service.sh(made, 'echo $SDK_KEY')).toBe('$MSB_SDK_KEY');
        await internet.requests();
        await service.sh(made, 'curl -sS -H "authorization: Bearer $SDK_KEY" http://api.test/echo');
        const requests = await internet.requests();
        expect(requests.map(({ host }) => host)).toEqual(['api.test']);
        expect(requests[0]!.headers).toContainEqual(['authorization', `Bearer ${VALUE}`]);
        expect(await service.sh(made, 'curl -sS http://other.test/echo')).toContain('Could not resolve host');
        await service.untilDenied(made, ({ name }) => name === 'other.test');
        expect(await internet.requests()).toEqual([]);
      });
    }

    test('are put in at the places of their entry', async () => {
      expect(await sh('echo $API_KEY')).toBe(PLACEHOLDER);
      await internet.requests();
      await sh(`curl -sS -u "user:$API_KEY" https://api.test/echo`);
      await sh(`curl -sS -G --data-urlencode "key=$API_KEY" https://api.test/echo`);
      await sh(
        `curl -sS --http1.1 -d "{\\"key\\": \\"$BODY_KEY\\"}" -H 'content-type: application/json' https://api.test/echo`,
      );
      const [basic, query, body] = await internet.requests();
      const credentials = Buffer.from(`user:${VALUE}`).toString('base64');
      expect(basic!.headers).toContainEqual(['authorization', `Basic ${credentials}`]);
      expect(query!.url).toContain(VALUE);
      expect(JSON.parse(body!.body)).toEqual({ key: BODY_VALUE });
      expect(Object.fromEntries(body!.headers)['content-length']).toBe(String(body!.bytes));
    });

    test.each([
      [
        'npm install',
        `mkdir /tmp/app && cd /tmp/app &&
         npm install --silent --registry https://${NPM_HOST}/ "--//${NPM_HOST}/:_authToken=$TOKEN" hello &&
         node node_modules/hello`,
        'hello from npm',
      ],
      [
        'git clone',
        `cd /tmp && git clone -q "https://x-access-token:$TOKEN@${GIT_HOST}/hello.git" && cat hello/README`,
        'hello from git',
      ],
    ])('open a registry and a repository for %s', async (_, script, expected) => {
      await internet.requests();
      expect(await sh(script)).toBe(expected);
      const seen = await internet.requests();
      expect(seen.map(({ headers }) => JSON.stringify(headers)).join()).not.toContain('$MSB_');
      const files = '/tmp/app /tmp/hello /root/.npm /root/.npmrc';
      expect(await sh(`grep -rlaF ${TOKEN_VALUE} ${files} 2>/dev/null`)).toBe('');
    });

    test('never leave to another host, to a stranger, or in the clear', async () => {
      await internet.requests();
      const header = `-H "x-key: $API_KEY"`;
      const tries = [
        `curl -sS -m 5 -L ${header} 'https://api.test/redirect/302?to=https://other.test/echo'`,
        `curl -sS -m 5 -L ${header} 'https://api.test/redirect/307?to=http://api.test/echo'`,
        `curl -sS -m 5 ${header} http://api.test/echo`,
        `curl -sS -m 5 ${header} http://other.test/echo`,
        `curl -sSk -m 5 ${header} https://other.test/echo`,
        `curl -sSk -m 5 ${header} https://untrusted.test/echo`,
        `curl -sSk -m 5 ${header} https://misnamed.test/echo`,
        // The name of the secret at an address of another.
        `curl -sSk -m 5 ${header} --resolve api.test:443:${at(11)} https://api.test/echo`,
        `curl -sSk -m 5 ${header} -H 'Host: other.test' https://api.test/echo`,
      ];
      for (const script of tries) {
        expect(await sh(script), script).not.toContain(VALUE);
        for (const { host, text } of await received()) {
          const isFirstOfRedirect = host === 'api.test' && text.includes('/redirect/');
          if (!isFirstOfRedirect) expect(text, script).not.toContain(VALUE);
        }
      }
      await service.untilDenied(id, ({ kind }) => kind === 'secret' || kind === 'request');
    });

    test('come back as placeholders from a server that repeats them', async () => {
      for (const type of ['text/plain', 'application/json']) {
        for (const version of ['--http1.1', '--http2']) {
          const answer = await sh(
            `curl -sS -i ${version} -H "x-key: $API_KEY" -d '{"key": "none"}' 'https://api.test/echo-back?type=${type}'`,
          );
          expect(answer).toContain(`x-echo-x-key: ${PLACEHOLDER}`);
          expect(answer).not.toContain(VALUE);
        }
      }
    });

    test('leave web sockets, streams of events, gRPC, splits and stalls as they are', async () => {
      const script = `
        import { connect } from 'node:http2';
        const socket = new WebSocket('wss://api.test/socket');
        console.log('web socket', await new Promise((resolve) => {
          socket.onopen = () => socket.send('hello');
          socket.onmessage = ({ data }) => resolve(data);
          socket.onerror = ({ message }) => resolve('failed ' + message);
        }));
        socket.close();
        const session = connect('https://api.test');
        session.on('error', console.log);
        const stream = session.request({ ':method': 'POST', ':path': '/grpc/call', 'content-type': 'application/grpc', te: 'trailers' });
        stream.on('trailers', (trailers) => console.log('grpc-status', trailers['grpc-status']));
        stream.end('message');
        let text = '';
        for await (const chunk of stream) text += chunk;
        console.log('grpc', text);
        session.close();
      `;
      const outcome = await service.node(id, script);
      expect(outcome).toContain('web socket hello');
      expect(outcome).toContain('grpc message');
      expect(outcome).toContain('grpc-status 0');
      expect(await sh('curl -sSN https://api.test/sse')).toContain('data: 2');
      expect(await sh('curl -sS https://api.test/split')).toBe('split by api.test');
      expect(await sh('curl -sS -m 10 https://api.test/stall')).toContain('timed out');
      expect(await sh('curl -sS https://api.test/reset')).toContain('curl: (');
      const upload = 'head -c 50000000 /dev/zero | curl -sS --http1.1 -T - https://api.test/echo';
      expect(JSON.parse(await sh(upload)).bytes).toBe(50_000_000);
      expect(await sh('curl -sS https://api.test/bytes/50000000 | wc -c')).toBe('50000000');
    });

    test('change at once for programs that run, and a removed one is a placeholder only', async () => {
      const call = 'curl -sS -H "x-key: $API_KEY" https://api.test/echo';
      const waits = `while [ ! -e /tmp/changed ]; do sleep 0.1; done; ${call} >/tmp/later; touch /tmp/done`;
      await sh(`(${waits}) >/dev/null 2>&1 &`);
      await internet.requests();
      const change = async (body: object) =>
        (await service.client.request('PUT', `/v1/sandboxes/${id}`, { body })).body;
      const rotated = await change({ secrets: [{ name: 'API_KEY', value: NEXT_VALUE }] });
      expect(rotated.changes).toMatchObject([{ change: 'rotated', disposition: 'live' }]);
      await sh('touch /tmp/changed; timeout 120 sh -c "while [ ! -e /tmp/done ]; do sleep 0.1; done"');
      expect(await sh('cat /tmp/later')).not.toContain(NEXT_VALUE);
      const [later] = await internet.requests();
      expect(later?.headers).toContainEqual(['x-key', NEXT_VALUE]);
      await change({ secrets_remove: ['API_KEY'] });
      await sh(call);
      const [removed] = await internet.requests();
      expect(removed?.headers).toContainEqual(['x-key', PLACEHOLDER]);
    });

    /** The answers of commands to an operator. */
    const outputs = async (): Promise<string[]> => {
      const place = ['--data-dir', service.dataDir];
      const [{ slug }] = await runJson(['org', 'list', ...place]);
      const ofOrg = [
        ['events', 'export'],
        ['events', 'export', '--format', 'csv'],
        ['events', 'export', '--format', 'ocsf'],
        ['usage'],
        ['webhook', 'list'],
      ].map((command) => [...command, '--org', slug]);
      const ended = await Promise.all(
        [...ofOrg, ['status', '--json']].map(async (command) => run([...command, ...place])),
      );
      for (const [position, { out, err }] of ended.entries())
        expect(out.length, `${position}: ${err}`).toBeGreaterThan(20);
      return ended.flatMap(({ out, err }) => [out, err]);
    };

    test('are in no file, row, log, event, export, webhook, output, backup or memory of the guest', async () => {
      await service.client.get(`/v1/sandboxes/${id}`);
      const values = [VALUE, NEXT_VALUE, BODY_VALUE, TOKEN_VALUE];
      const forms = values.flatMap((value) => [
        value,
        Buffer.from(value).toString('base64').replace(/=+$/, ''),
      ]);
      const patterns = forms.flatMap((form) => ['-e', form]);
      const backup = await service.backUp();
      for (const directory of [service.dataDir, backup, await service.containerDirectory(id)]) {
        expect(filesWith(patterns, directory), directory).toBe('');
      }
      const told = (text: string) => text.includes('network_secret_withheld');
      await until(() => Promise.resolve(receiver.messages.map(({ text }) => text).join()), told);
      const answers = await Promise.all(
        [
          `/v1/sandboxes/${id}`,
          '/v1/sandboxes',
          '/v1/events?limit=100',
          `/v1/sandboxes/${id}/network/denied`,
        ].map(async (path) => (await service.client.get(path)).text),
      );
      for (const text of [
        ...answers,
        ...(await outputs()),
        ...receiver.messages.flatMap(({ text, headers }) => [text, JSON.stringify(headers)]),
        service.served.out(),
        service.served.err(),
        await sh('env; cat /proc/*/environ'),
      ]) {
        for (const form of forms) expect(text).not.toContain(form);
      }
      const processes = processesOf(await service.pidOf(id));
      expect(processes.length).toBeGreaterThan(0);
      for (const pid of processes) {
        for (const value of values) expect(memoryHolds(pid, value), `process ${pid}`).toBe(false);
      }
      // The search finds a value that is there.
      expect(memoryHolds(process.pid, VALUE)).toBe(true);
    });
  });
});

function filesWith(patterns: readonly string[], directory: string): string {
  try {
    return execFileSync('grep', ['-rlaF', ...patterns, directory], { encoding: 'utf8' });
  } catch (error) {
    // 1: no file has it. 2: a file went away during the search.
    const { status, stdout } = error as { status: number; stdout: string };
    if (status === 1 || status === 2) return stdout;
    throw error;
  }
}
