import { execFileSync } from 'node:child_process';
import { generateKeyPairSync, randomUUID, X509Certificate } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { rootCertificates } from 'node:tls';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import type { Run } from '../../src/engine/runtime.js';
import { writeEntries, type Entry } from '../../src/engines/docker/archive.js';
import { DockerRuntime } from '../../src/engines/docker/runtime.js';
import { makeAuthority, makeLeaf, openAuthority } from '../../src/gateway/intercept/certificate.js';
import type { Authority } from '../../src/gateway/protocol.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { VolumeStore } from '../../src/volumes/storage/store.js';
import { containerOf, describeDocker, docker, execIn, IMAGE, importImage } from '../support/docker.js';
import { makeImage, SOCKET } from '../support/docker.js';
import { CLIENTS, makeClientImage } from '../support/internet/client-image.js';
import { until } from '../support/polling.js';
import { prepareImages } from '../support/prepare-images.js';
import { GATED, runSpecOf } from '../support/run-spec.js';

/** The stores of other distributions, around the same programs. */
const FEDORA = 'sandkeep-test:trust-fedora';
const ALPINE = 'sandkeep-test:trust-alpine';

describeDocker('the authorities that a sandbox trusts', () => {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-trust-'));
  let runtime: DockerRuntime;
  let authority: Authority = makeAuthority('of this test');
  const made: string[] = [];
  prepareImages(makeClientImage);
  beforeAll(async () => {
    makeImage();
    makeStores();
    runtime = await DockerRuntime.connect(randomUUID(), {
      socketPath: SOCKET,
      network: 'none',
      volumes: new VolumeStore(join(directory, 'volumes')),
      gateway: {
        authority: async () => authority,
        secrets: async () => ({ registry: null, values: {} }),
        specOf: async () => undefined,
        denied: () => undefined,
        flows: () => undefined,
      },
    });
  });
  afterAll(async () => {
    for (const id of made) await runtime.destroy(id);
    await runtime.close();
    for (const name of [FEDORA, ALPINE]) await docker.getImage(name).remove({ force: true });
    rmSync(directory, { recursive: true });
  });

  function makeStores(): void {
    const root = mkdtempSync(join(directory, 'image-'));
    const bundle = rootCertificates.slice(0, 3).join('\n');
    const put = (path: string, content: string) => {
      mkdirSync(join(root, dirname(path)), { recursive: true });
      writeFileSync(join(root, path), content);
    };
    execFileSync('cp', ['/bin/busybox', root]);
    for (const folder of ['bin', 'tmp', 'etc']) mkdirSync(join(root, folder));
    execFileSync('mv', [join(root, 'busybox'), join(root, 'bin/busybox')]);
    for (const applet of ['sh', 'sleep', 'cat', 'ls', 'readlink', 'env'])
      symlinkSync('busybox', join(root, 'bin', applet));
    put('etc/ssl/certs/ca-certificates.crt', `# of Alpine\n${bundle}`);
    symlinkSync('certs/ca-certificates.crt', join(root, 'etc/ssl/cert.pem'));
    mkdirSync(join(root, 'usr/local/share/ca-certificates'), { recursive: true });
    importImage(root, ALPINE, { change: 'ENV SSL_CERT_FILE=/etc/ssl/cert.pem' });
    rmSync(join(root, 'etc/ssl'), { recursive: true });
    rmSync(join(root, 'usr'), { recursive: true });
    const extracted = '/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem';
    put(extracted, bundle);
    put('etc/pki/ca-trust/source/anchors/company.pem', rootCertificates[4]!);
    for (const link of ['etc/pki/tls/certs/ca-bundle.crt', 'etc/ssl/certs/ca-bundle.crt']) {
      mkdirSync(join(root, dirname(link)), { recursive: true });
      symlinkSync(extracted, join(root, link));
    }
    importImage(root, FEDORA);
  }

  function runOf(spec: Partial<RunSpec>): Run {
    const sandboxId = randomUUID();
    made.push(sandboxId);
    return {
      orgId: randomUUID(),
      sandboxId,
      runId: randomUUID(),
      name: 'trust',
      secrets: { registry: null, values: {} },
      spec: runSpecOf(IMAGE, {
        memoryMib: 512,
        cmd: ['sleep', '1000000'],
        networkEnabled: false,
        gated: { ...GATED, tls: { ...GATED.tls, enabled: true } },
        ...spec,
      }),
    };
  }
  async function start(spec: Partial<RunSpec>): Promise<Run> {
    const run = runOf(spec);
    await runtime.start(run, new AbortController().signal);
    return run;
  }
  /** Another run on the same disk. `change`: of the guest, meanwhile. */
  async function startAgain(run: Run, change: () => Promise<unknown> = async () => undefined): Promise<void> {
    await runtime.stop(run.sandboxId, 0);
    await until(
      () => runtime.list(),
      (held) => held.some(({ sandboxId, state }) => sandboxId === run.sandboxId && state === 'exited'),
    );
    await change();
    await runtime.start({ ...run, runId: randomUUID() }, new AbortController().signal);
  }
  const sh = async ({ sandboxId }: Run, script: string) =>
    (await execIn(sandboxId, 'sh', '-c', `exec 2>&1 </dev/null; ${script}`)).replaceAll('\r\n', '\n').trim();

  /** Serves a page at https://localhost:8443 with a certificate of the authority, inside of the sandbox. */
  async function serve(run: Run): Promise<void> {
    const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const key = keys.privateKey.export({ type: 'pkcs8', format: 'pem' });
    const leaf = makeLeaf(openAuthority(authority), keys.publicKey, 'localhost', 24);
    const container = (await containerOf(run.sandboxId))!;
    const exec = await container.exec({
      Cmd: [
        'sh',
        '-c',
        `cd /tmp; cat >server.pem <<END\n${String(key)}${leaf}END\nexec openssl s_server -accept 8443 -cert server.pem -www >/dev/null 2>&1`,
      ],
    });
    await exec.start({ Detach: true });
    await until(
      () => sh(run, 'curl -sk https://localhost:8443/ | head -c 6'),
      (text) => text === '<HTML>',
    );
  }

  const clients: [client: string, command: string, answer: RegExp][] = [
    ['curl', 'curl -sS https://localhost:8443/', /<HTML>/],
    ['curl without variables', 'env -i curl -sS https://localhost:8443/', /<HTML>/],
    [
      'openssl',
      'openssl s_client -connect localhost:8443 -verify_return_error',
      /Verify return code: 0 \(ok\)/,
    ],
    [
      'openssl without variables, by the hash of the subject',
      'env -i openssl s_client -connect localhost:8443 -CApath /etc/ssl/certs -no-CAfile -verify_return_error',
      /Verify return code: 0 \(ok\)/,
    ],
    [
      'python',
      `python3 -c 'import urllib.request as r; print(r.urlopen("https://localhost:8443").status)'`,
      /^200$/,
    ],
    [
      'requests',
      `python3 -c 'import requests as r; print(r.get("https://localhost:8443").status_code)'`,
      /^200$/,
    ],
    ['httpx', `python3 -c 'import httpx as r; print(r.get("https://localhost:8443").status_code)'`, /^200$/],
    ['node', `node -e 'fetch("https://localhost:8443").then((a) => console.log(a.status))'`, /^200$/],
    ['java', 'java -cp /opt/clients Get https://localhost:8443/', / 200 /],
    ['go', '/opt/clients/go-get https://localhost:8443/', / 200 /],
    ['git', 'git ls-remote https://localhost:8443/x.git', /not valid: is this a git repository/],
    ['pip', 'pip download --no-deps --index-url https://localhost:8443/ x', /No matching distribution/],
  ];
  test('have that of the interception for every client, also for a user without rights', async () => {
    for (const spec of [{}, { user: '1000:1000', securityProfile: 'restricted' as const }]) {
      const run = await start({ image: CLIENTS, ...spec });
      await serve(run);
      for (const [client, command, answer] of clients)
        expect(await sh(run, `cd /tmp; HOME=/tmp; ${command}`), client).toMatch(answer);
    }
  });

  test('are those of the next authority after a rotation, also when the image makes its bundle again', async () => {
    const run = await start({ image: CLIENTS });
    const earlier = authority;
    await sh(run, 'update-ca-certificates --fresh');
    authority = makeAuthority('of the next test');
    onTestFinished(() => void (authority = earlier));
    await startAgain(run);
    await serve(run);
    const commands = clients.filter(([client]) => /curl|openssl/.test(client));
    for (const [client, command, answer] of commands) expect(await sh(run, command), client).toMatch(answer);
    const bundle = await sh(run, 'cat /etc/ssl/certs/ca-certificates.crt');
    expect(subjectsIn(bundle).filter((name) => name.includes('Sandkeep'))).toEqual([
      'O=Sandkeep\nCN=Sandkeep interception of the next test',
    ]);
    expect(
      await sh(run, 'update-ca-certificates --fresh >/dev/null; env -i curl -sS https://localhost:8443/'),
    ).toMatch('<HTML>');
  });

  test('are in a bundle of the service where the image has none, with the public ones', async () => {
    const run = await start({});
    const bundle = await sh(run, 'cat "$SSL_CERT_FILE"');
    expect(subjectsIn(bundle)).toHaveLength(rootCertificates.length + 1);
    expect(await sh(run, 'cat "$NODE_EXTRA_CA_CERTS"')).toBe(authority.certificate.trim());
    expect(await sh(run, 'ls /etc; echo x >"$SSL_CERT_FILE"')).toMatch(/Read-only file system/);
    expect(await sh(run, 'ls /etc')).not.toMatch(/ssl|pki/);
  });

  test('are in the stores of Fedora and Alpine, and variables of the image or the request stay', async () => {
    const fedora = await start({ image: FEDORA, env: [{ key: 'PIP_CERT', value: '/mine' }] });
    expect(await sh(fedora, 'echo "$PIP_CERT"; busybox readlink "$CURL_CA_BUNDLE"')).toBe(
      '/mine\n/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem',
    );
    expect(subjectsIn(await sh(fedora, 'cat /etc/ssl/certs/ca-bundle.crt'))).toHaveLength(4);
    expect(await sh(fedora, 'cd /etc/pki/ca-trust/source/anchors; ls; cat sandkeep.pem')).toBe(
      `company.pem\nsandkeep.pem\n${authority.certificate.trim()}`,
    );
    const alpine = await start({ image: ALPINE });
    expect(await sh(alpine, 'echo "$SSL_CERT_FILE"; busybox readlink /etc/ssl/cert.pem')).toBe(
      '/etc/ssl/cert.pem\ncerts/ca-certificates.crt',
    );
    const bundle = await sh(alpine, 'cat /etc/ssl/cert.pem');
    expect([subjectsIn(bundle).length, bundle.startsWith('# of Alpine')]).toEqual([4, true]);
    expect(await sh(alpine, 'ls /usr/local/share/ca-certificates')).toBe('sandkeep.crt');
  });

  const STORE = 'etc/ssl/certs/ca-certificates.crt';
  const hostile: [what: string, script: string][] = [
    ['a pipe', `busybox mkfifo ${STORE}`],
    ['a link to a process', `busybox ln -s /proc/1/environ ${STORE}`],
    ['a link to itself', `busybox ln -s ca-certificates.crt ${STORE}`],
    ['a link out of the container', `busybox ln -s ../../../../../../../../../../etc/hostname ${STORE}`],
    ['a directory', `busybox mkdir ${STORE}`],
    ['a file of a terabyte', `busybox truncate -s 1T ${STORE}`],
    ['no certificates', `echo '-----BEGIN CERTIFICATE-----' >${STORE}`],
    [
      'certificates that are none',
      `echo '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----' >${STORE}`,
    ],
    ['directories as links to one another', 'rm -r /etc/ssl; busybox ln -s /etc/ssl/certs /etc/ssl'],
    [
      'the files of the service',
      'rm -r /etc/ssl/certs; busybox ln -s /.sandkeep/trust /etc/ssl/certs; busybox ln -s /.sandkeep /usr/local/share/ca-certificates',
    ],
  ];
  test('are in the files of the service, whatever the guest puts at the paths of its store', async () => {
    const run = await start({ image: ALPINE });
    for (const [what, script] of hostile) {
      await sh(run, `cd /; rm -rf /etc/ssl /usr/local/share/*; busybox mkdir -p /etc/ssl/certs; ${script}`);
      await startAgain(run);
      const bundle = await sh(run, 'busybox head -c 400000 "$CURL_CA_BUNDLE"');
      expect(bundle, what).toContain(authority.certificate.trim());
      expect(await sh(run, 'cat "$NODE_EXTRA_CA_CERTS"'), what).toBe(authority.certificate.trim());
    }
    const container = (await containerOf(run.sandboxId))!;
    // The machine has its own files.
    const entries: Entry[] = [{ name: STORE, type: 'symlink', target: '/etc/hostname' }];
    await startAgain(run, async () => writeEntries(container, entries).catch(() => undefined));
    expect(await sh(run, 'cat /etc/hostname')).not.toContain('CERTIFICATE');
  });

  test('are those of the machine too where the request asks for them', async () => {
    const machine = execFileSync('cat', ['/etc/ssl/certs/ca-certificates.crt'], { encoding: 'utf8' });
    const run = await start({ gated: null, trustHostCas: true });
    const bundle = new Set(subjectsIn(await sh(run, 'cat "$SSL_CERT_FILE"')));
    expect(subjectsIn(machine).filter((name) => !bundle.has(name))).toEqual([]);
    expect(bundle.has('O=Sandkeep\nCN=Sandkeep interception of this test')).toBe(false);
    const plain = await start({ gated: null });
    expect(await sh(plain, 'env; ls /.sandkeep')).not.toMatch(/CERT|trust/);
  });
});

function subjectsIn(pem: string): string[] {
  return (pem.match(/-----BEGIN [^-]+-----[^-]+-----END [^-]+-----/g) ?? []).map(
    (text) => new X509Certificate(text).subject,
  );
}
