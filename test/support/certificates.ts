import {
  generateKeyPairSync,
  randomBytes,
  sign,
  type KeyObject,
  type KeyPairKeyObjectResult,
} from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';

const DAY_MS = 24 * 60 * 60_000;
const ECDSA_SHA256 = '06082a8648ce3d040302';
const COMMON_NAME = '0603550403';
const SUBJECT_ALTERNATIVES = '0603551d11';
const BASIC_CONSTRAINTS = '0603551d13';
/** An extension that says "critical", and then: this is an authority. */
const IS_AUTHORITY = '0101ff040530030101ff';

export interface IssuedPair {
  /** The certificate alone. */
  leaf: string;
  /** The certificate, then that of the intermediate authority. */
  cert: string;
  key: string;
}

export interface IssueOptions {
  names?: string[];
  /** From now. */
  days?: number;
}

interface Signer {
  name: string;
  key: KeyObject;
}

/** An authority with a root and an intermediate certificate, as public ones have. */
export class Authority {
  /** In PEM, for clients. */
  readonly root: string;
  private readonly intermediate: string;
  private readonly signer: Signer;

  constructor() {
    const [root, keys] = [makeKeys(), makeKeys()];
    const signer = { name: 'Test root', key: root.privateKey };
    const extensions = [sequence(hex(BASIC_CONSTRAINTS), hex(IS_AUTHORITY))];
    this.root = certify(signer, { name: 'Test root', key: root.publicKey, days: 3_650, extensions });
    this.signer = { name: 'Test intermediate', key: keys.privateKey };
    this.intermediate = certify(signer, {
      name: this.signer.name,
      key: keys.publicKey,
      days: 3_650,
      extensions,
    });
  }

  /** A name that is an IP address becomes one in the certificate. */
  issue({ names = ['localhost', '127.0.0.1'], days = 90 }: IssueOptions = {}): IssuedPair {
    const keys = makeKeys();
    const alternatives = sequence(
      ...names.map((name) =>
        isIP(name) === 0 ? der(0x82, Buffer.from(name)) : der(0x87, Buffer.from(name.split('.').map(Number))),
      ),
    );
    const extensions = [sequence(hex(SUBJECT_ALTERNATIVES), der(0x04, alternatives))];
    const leaf = certify(this.signer, { name: names[0]!, key: keys.publicKey, days, extensions });
    const key = String(keys.privateKey.export({ type: 'pkcs8', format: 'pem' }));
    return { leaf, cert: leaf + this.intermediate, key };
  }
}

function makeKeys(): KeyPairKeyObjectResult {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' });
}

/** A certificate of version 3 (RFC 5280) in PEM. */
function certify(
  signer: Signer,
  subject: { name: string; key: KeyObject; days: number; extensions: Buffer[] },
): string {
  const algorithm = sequence(hex(ECDSA_SHA256));
  const body = sequence(
    der(0xa0, hex('020102')),
    der(0x02, Buffer.concat([Buffer.from([1]), randomBytes(15)])),
    algorithm,
    nameOf(signer.name),
    sequence(timeOf(-1_000), timeOf(subject.days)),
    nameOf(subject.name),
    subject.key.export({ type: 'spki', format: 'der' }),
    der(0xa3, sequence(...subject.extensions)),
  );
  const signature = der(0x03, Buffer.from([0]), sign('sha256', body, signer.key));
  const base64 = sequence(body, algorithm, signature)
    .toString('base64')
    .replace(/.{64}(?=.)/g, '$&\n');
  return `-----BEGIN CERTIFICATE-----\n${base64}\n-----END CERTIFICATE-----\n`;
}

function nameOf(name: string): Buffer {
  return sequence(der(0x31, sequence(hex(COMMON_NAME), der(0x0c, Buffer.from(name)))));
}

/** A GeneralizedTime. */
function timeOf(days: number): Buffer {
  const text = new Date(Date.now() + days * DAY_MS).toISOString().replaceAll(/[-:T]|\.\d+/g, '');
  return der(0x18, Buffer.from(text));
}

const hex = (digits: string) => Buffer.from(digits, 'hex');
const sequence = (...parts: Buffer[]) => der(0x30, ...parts);

function der(tag: number, ...parts: Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

export interface PairFiles {
  cert: string;
  key: string;
  write(this: void, pair: Pick<IssuedPair, 'cert' | 'key'>): void;
}

/** Files of a pair in a folder of this test. */
export function pairFiles(pair: Pick<IssuedPair, 'cert' | 'key'>): PairFiles {
  const folder = mkdtempSync(join(tmpdir(), 'sandkeep-tls-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const [cert, key] = [join(folder, 'cert.pem'), join(folder, 'key.pem')];
  const write: PairFiles['write'] = (next) => {
    rmSync(key, { force: true });
    writeFileSync(key, next.key, { mode: 0o600 });
    writeFileSync(cert, next.cert);
  };
  write(pair);
  return { cert, key, write };
}
