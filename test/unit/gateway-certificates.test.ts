import { execFile, spawnSync } from 'node:child_process';
import { createHash, generateKeyPairSync, X509Certificate } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it, onTestFinished } from 'vitest';
import { makeAuthority, makeLeaf, openAuthority } from '../../src/gateway/intercept/certificate.js';
import { LeafCertificates } from '../../src/gateway/intercept/leaf-certificates.js';
import { GatedSandbox } from '../../src/gateway/sandbox.js';
import { GATEWAY_AUTHORITY, identity, listen, settingsOf } from '../support/interceptor.js';

const run = promisify(execFile);
const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });

it('makes an authority that signs names, and no addresses and no authorities', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sandkeep-authority-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const authority = makeAuthority('test');
  const file = (name: string, text: string) => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const ca = file('ca.pem', authority.certificate);
  const { stdout: text } = await run('openssl', ['x509', '-in', ca, '-noout', '-text']);
  for (const part of ['CA:TRUE, pathlen:0', 'Certificate Sign', 'IP:0.0.0.0/0.0.0.0', 'prime256v1'])
    expect(text).toContain(part);
  const names = ['api.example.com', '_dmarc.example.com', `${'a'.repeat(60)}.${'b'.repeat(60)}.example.com`];
  for (const name of names) {
    const leaf = file('leaf.pem', makeLeaf(openAuthority(authority), publicKey, name, 24));
    const verify = ['verify', '-x509_strict', '-CAfile', ca, '-purpose', 'sslserver'];
    await expect(run('openssl', [...verify, '-verify_hostname', name, leaf])).resolves.toBeDefined();
    await expect(run('openssl', [...verify, '-verify_hostname', 'other.example', leaf])).rejects.toThrow();
  }
});

const PYTHON = `import ssl, sys, urllib.request
print(urllib.request.urlopen(sys.argv[2], context=ssl.create_default_context(cafile=sys.argv[1])).read().decode())`;
const JAVA = `import java.io.*; import java.net.*; import java.security.*; import java.security.cert.*; import javax.net.ssl.*;
public class Main { public static void main(String[] args) throws Exception {
  KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
  store.load(null, null);
  var ca = CertificateFactory.getInstance("X.509").generateCertificate(new FileInputStream(args[0]));
  store.setCertificateEntry("ca", ca);
  var trust = TrustManagerFactory.getInstance("PKIX");
  trust.init(store);
  var context = SSLContext.getInstance("TLS");
  context.init(null, trust.getTrustManagers(), null);
  var connection = (HttpsURLConnection) new URL(args[1]).openConnection();
  connection.setSSLSocketFactory(context.getSocketFactory());
  System.out.println(new String(connection.getInputStream().readAllBytes()));
} }`;
const NODE = `fetch(process.argv[1]).then((answer) => answer.text()).then(console.log)`;
/** Docker tests have the other languages, in containers. */
const hasJava = spawnSync('java', ['-version']).error === undefined;

it.each(['node', 'python3', 'curl', ...(hasJava ? ['java'] : [])])(
  'makes an authority that %s accepts',
  async (client) => {
    const folder = mkdtempSync(join(tmpdir(), 'sandkeep-authority-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const [ca, program] = [join(folder, 'ca.pem'), join(folder, 'Main.java')];
    writeFileSync(ca, GATEWAY_AUTHORITY.certificate);
    writeFileSync(program, JAVA);
    const server = createServer(
      identity('localhost', GATEWAY_AUTHORITY),
      (_, response) => void response.end('fine'),
    );
    const url = `https://localhost:${await listen(server)}/`;
    const argv: Record<string, string[]> = {
      node: ['-e', NODE, url],
      python3: ['-c', PYTHON, ca, url],
      curl: ['-sS', '--cacert', ca, url],
      java: [program, ca, url],
    };
    const { stdout } = await run(client, argv[client], { env: { ...process.env, NODE_EXTRA_CA_CERTS: ca } });
    expect(stdout.trim()).toBe('fine');
  },
);

it('lets a leaf certificate begin an hour ago', () => {
  const leaf = new X509Certificate(makeLeaf(openAuthority(GATEWAY_AUTHORITY), publicKey, 'a.example', 24));
  const hours = (text: string) => Math.round((Date.parse(text) - Date.now()) / 3_600_000);
  expect([hours(leaf.validFrom), hours(leaf.validTo)]).toEqual([-1, 24]);
  expect(leaf.verify(new X509Certificate(GATEWAY_AUTHORITY.certificate).publicKey)).toBe(true);
});

it('refuses an authority whose key is another', () => {
  const { key } = makeAuthority('other');
  expect(() => openAuthority({ ...GATEWAY_AUTHORITY, key })).toThrow(
    'the key is not that of the certificate',
  );
});

it('makes one certificate for a name, and keeps as many as the sandbox may have', async () => {
  const leaves = new LeafCertificates();
  leaves.setAuthority(GATEWAY_AUTHORITY);
  const sandbox = new GatedSandbox(settingsOf({ tls: { cacheCapacity: 3 } }));
  const [first, second] = await Promise.all([1, 2].map(() => leaves.contextFor(sandbox, 'a.example')));
  expect(first).toBe(second);
  for (const name of ['b', 'c', 'd']) await leaves.contextFor(sandbox, `${name}.example`);
  expect(leaves.size).toBe(3);
  expect(await leaves.contextFor(sandbox, 'a.example')).not.toBe(first);
  leaves.setAuthority(makeAuthority('next'));
  expect(leaves.size).toBe(0);
});

it('makes the certificates of a sandbox with endless names wait, and those of others not', async () => {
  const leaves = new LeafCertificates();
  leaves.setAuthority(GATEWAY_AUTHORITY);
  const greedy = new GatedSandbox(settingsOf({}));
  const other = new GatedSandbox({ ...settingsOf({}), id: 'other' });
  const name = (index: number) =>
    `${createHash('sha256').update(String(index)).digest('hex').slice(0, 20)}.example`;
  let refused = 0;
  for (let index = 0; index < 500; index += 1)
    void leaves.contextFor(greedy, name(index)).then((context) => (refused += context ? 0 : 1));
  // It waits for 5 s at most. All after that are refused at once.
  expect(await leaves.contextFor(other, 'b.example')).toBeDefined();
  expect(refused).toBeGreaterThan(100);
});
