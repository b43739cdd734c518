import { generateKeyPairSync } from 'node:crypto';
import { chmodSync, chownSync, writeFileSync } from 'node:fs';
import { beforeAll, describe, expect, test } from 'vitest';
import { inspectTls } from '../../src/cli/doctor-tls.js';
import { Certificate, daysLeft } from '../../src/http/tls/certificate.js';
import { readKeyPair } from '../../src/http/tls/key-pair.js';
import { Authority, pairFiles, type IssuedPair } from '../support/certificates.js';
import { until } from '../support/polling.js';

let authority: Authority;
let pair: IssuedPair;
let other: IssuedPair;
beforeAll(() => {
  authority = new Authority();
  pair = authority.issue({ names: ['a.example', '10.0.0.1'], days: 30.5 });
  other = authority.issue();
});

describe('a certificate and its key', () => {
  test('are read with their names and their end', () => {
    const read = readKeyPair(pairFiles(pair));
    expect(read.names).toBe('DNS:a.example, IP Address:10.0.0.1');
    expect(daysLeft(read)).toBe(30);
  });

  test.each<[string, () => Partial<IssuedPair>, RegExp]>([
    ['of two pairs', () => ({ key: other.key }), /key\.pem is not the key of the certificate in .*cert\.pem/],
    [
      'in the wrong order',
      () => ({
        cert: pair.cert
          .split(/(?<=END CERTIFICATE-----\n)/)
          .toReversed()
          .join(''),
      }),
      /is not the first one in .*: put it first/,
    ],
    ['without a certificate', () => ({ cert: 'DER' }), /has no certificate in PEM form: convert one/],
    ['that are empty', () => ({ cert: '', key: '' }), /has no certificate in PEM form/],
    [
      'cut off',
      () => ({ cert: pair.leaf.replace(/.{200}(?=\n?-----END)/s, '') }),
      /certificate 1 of .*cert\.pem is damaged/,
    ],
    ['without a key', () => ({ key: pair.leaf }), /key\.pem has no private key in PEM form/],
    [
      'with an encrypted key',
      () => ({ key: encryptedKey() }),
      /key\.pem is encrypted: decrypt it with "openssl pkey/,
    ],
  ])('%s are refused with the reason', (_name, change, message) => {
    const files = pairFiles({ ...pair, ...change() });
    expect(() => readKeyPair(files)).toThrow(message);
  });

  test('that are missing or too large are refused with their option', () => {
    const files = pairFiles(pair);
    expect(() => readKeyPair({ ...files, cert: '/nonexistent/a.pem' })).toThrow(
      /cannot read the certificate from \/nonexistent\/a\.pem .*correct --tls-cert/,
    );
    writeFileSync(files.key, 'x'.repeat(2 * 1024 * 1024));
    expect(() => readKeyPair(files)).toThrow(/key\.pem \(the file is too large\): correct --tls-key/);
  });

  test('are refused while others may read the key', () => {
    const files = pairFiles(pair);
    const isRoot = process.getuid!() === 0;
    const allowed = [0o600, 0o400, ...(isRoot ? [0o640, 0o440] : [])];
    const refused = [0o644, 0o604, 0o602, 0o660, 0o620, 0o610];
    for (const mode of [...allowed, ...refused]) {
      chmodSync(files.key, mode);
      if (allowed.includes(mode)) readKeyPair(files);
      else expect(() => readKeyPair(files), mode.toString(8)).toThrow(/others may read or write the key/);
    }
    if (!isRoot) return;
    // The group of a user is not the choice of an administrator.
    chmodSync(files.key, 0o640);
    chownSync(files.key, 65_534, 0);
    expect(() => readKeyPair(files)).toThrow(/run "chmod 600/);
  });
});

test('doctor names the state of the files', () => {
  const inspect = (options: Partial<Parameters<typeof inspectTls>[0]>) =>
    inspectTls({ tlsCert: undefined, tlsKey: undefined, forwardCa: undefined, ...options });
  const of = ({ cert, key }: { cert: string; key: string }) => inspect({ tlsCert: cert, tlsKey: key });
  const soon = pairFiles(authority.issue({ days: 3.5 }));
  expect(inspect({})).toEqual([]);
  expect(of(pairFiles(pair))).toMatchObject([
    { state: 'ok', found: expect.stringContaining('30 more days') },
  ]);
  expect(of(soon)).toMatchObject([
    {
      state: 'missing',
      found: expect.stringContaining('3 more days'),
      remedy: expect.stringMatching(/^renew/),
    },
  ]);
  expect(of(pairFiles(authority.issue({ days: -1 })))).toMatchObject([
    {
      state: 'broken',
      found: expect.stringMatching(/has expired$/),
      remedy: expect.stringMatching(/^renew/),
    },
  ]);
  expect(inspect({ tlsCert: soon.cert })).toMatchObject([
    { state: 'broken', remedy: 'give both --tls-cert and --tls-key' },
  ]);
  expect(inspect({ forwardCa: '/nonexistent/ca.pem' })).toMatchObject([
    { state: 'broken', found: expect.stringContaining('correct --forward-ca') },
  ]);
});

describe('a certificate whose files change', () => {
  const start = (files: { cert: string; key: string }) => {
    const logs: object[] = [];
    const log = (fields: object, message: string) => void logs.push({ ...fields, message });
    const certificate = new Certificate(files, { info: log, warn: log, error: log });
    const served: string[] = [];
    certificate.onRenewal(({ names }) => served.push(names));
    return { certificate, logs, served };
  };

  test('is served without a call once both are complete', async () => {
    const files = pairFiles(pair);
    const { certificate, served, logs } = start(files);
    certificate.watch(10);
    files.write({ cert: other.cert, key: pair.key });
    await until(
      async () => Promise.resolve(certificate.isRefused),
      (refused) => refused,
    );
    expect(logs.at(-1)).toMatchObject({
      reason: expect.stringContaining('is not the key of the certificate'),
    });
    expect(certificate.pair.cert).toBe(pair.cert);
    files.write(other);
    await until(
      async () => Promise.resolve(served.length),
      (count) => count === 1,
    );
    certificate.close();
    expect([certificate.isRefused, certificate.pair.cert]).toEqual([false, other.cert]);
    expect(logs.at(-1)).toMatchObject({ message: 'the TLS certificate was renewed', names: served[0] });
  });

  test('stays when the new one has expired, and an old one at the start is only a warning', async () => {
    const files = pairFiles(pair);
    const { certificate, logs, served } = start(files);
    files.write(authority.issue({ days: -1.5 }));
    certificate.reload();
    expect(logs).toMatchObject([{ reason: expect.stringMatching(/cert\.pem has expired: renew it$/) }]);
    expect([served, certificate.isRefused]).toEqual([[], true]);
    expect(start(files).logs).toMatchObject([{ days: -2, message: expect.stringContaining('renew it') }]);
  });
});

function encryptedKey(): string {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return String(
    privateKey.export({ type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'secret' }),
  );
}
