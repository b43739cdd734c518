import { createPrivateKey, X509Certificate, type KeyObject } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import { ExplainedError } from '../../lib/explained-error.js';

export interface KeyPairFiles {
  /** PEM: the certificate of the service, then those that lead to a known authority. */
  cert: string;
  /** PEM, not encrypted. */
  key: string;
  /** The options that name the files. Default: those of the API. */
  flags?: { cert: string; key: string };
}

const API_FLAGS = { cert: '--tls-cert', key: '--tls-key' };

export interface KeyPair {
  cert: string;
  key: string;
  /** The first of the certificates to expire decides. Milliseconds since 1970. */
  expiresAt: number;
  /** The names that the certificate is for. */
  names: string;
}

const BLOCK = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;
/** Beyond it a file is no certificate and no key. */
const MAX_BYTES = 1024 * 1024;
const OTHERS_ACCESS = 0o007;
const GROUP_ACCESS = 0o070;
const GROUP_READ = 0o040;

/** Reads and checks a certificate and its key. Throws ExplainedError. */
export function readKeyPair(files: KeyPairFiles): KeyPair {
  const flags = files.flags ?? API_FLAGS;
  const cert = read(files.cert, 'the certificate', flags.cert);
  const chain = parseChain(cert, files.cert);
  const keyText = read(files.key, 'the key of the certificate', flags.key);
  checkMode(files.key);
  const key = parseKey(keyText, files.key, flags.key);
  const [leaf] = chain as [X509Certificate];
  if (!leaf.checkPrivateKey(key)) {
    throw new ExplainedError(
      chain.some((other) => other.checkPrivateKey(key))
        ? `the certificate of ${files.key} is not the first one in ${files.cert}: put it first, and its authorities after it`
        : `${files.key} is not the key of the certificate in ${files.cert}: give the files of one pair`,
    );
  }
  try {
    createSecureContext({ cert, key: keyText });
  } catch (error) {
    throw new ExplainedError(
      `OpenSSL refuses the certificate of ${files.cert} (${(error as Error).message}): issue another`,
      { cause: error },
    );
  }
  const expiresAt = Math.min(...chain.map(({ validTo }) => Date.parse(validTo)));
  return { cert, key: keyText, expiresAt, names: leaf.subjectAltName ?? leaf.subject };
}

/** Certificates in PEM, for `ca` of Node. Throws ExplainedError. */
export function readAuthorities(file: string, flag: string): string[] {
  const text = read(file, 'certificates', flag);
  parseChain(text, file);
  return text.match(BLOCK)!;
}

function read(file: string, content: string, flag: string): string {
  try {
    const { size } = statSync(file);
    if (size > MAX_BYTES) throw new Error('the file is too large');
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new ExplainedError(
      `cannot read ${content} from ${file} (${(error as Error).message}): correct ${flag}`,
      { cause: error },
    );
  }
}

/** The same rule as that of PostgreSQL: a group may read the keys of root. */
function checkMode(file: string): void {
  const { mode, uid } = statSync(file);
  const isGroupSafe = (mode & GROUP_ACCESS) === 0 || (uid === 0 && (mode & GROUP_ACCESS) === GROUP_READ);
  if ((mode & OTHERS_ACCESS) === 0 && isGroupSafe) return;
  throw new ExplainedError(
    `others may read or write the key ${file}: run "chmod 600 ${file}", or "chmod 640" for a key of root`,
  );
}

function parseChain(text: string, file: string): X509Certificate[] {
  const blocks = text.match(BLOCK);
  if (!blocks) {
    throw new ExplainedError(
      `${file} has no certificate in PEM form: convert one with "openssl x509 -inform der -in ${file}"`,
    );
  }
  return blocks.map((block, index) => {
    try {
      return new X509Certificate(block);
    } catch (error) {
      throw new ExplainedError(`certificate ${index + 1} of ${file} is damaged: copy the file again`, {
        cause: error,
      });
    }
  });
}

function parseKey(text: string, file: string, flag: string): KeyObject {
  if (/-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED/m.test(text)) {
    throw new ExplainedError(
      `the key ${file} is encrypted: decrypt it with "openssl pkey -in ${file} -out <file>"`,
    );
  }
  try {
    return createPrivateKey(text);
  } catch (error) {
    throw new ExplainedError(`${file} has no private key in PEM form: correct ${flag}`, { cause: error });
  }
}
