import { createHash } from 'node:crypto';

const MAGIC = 0xfeedfeed;
const VERSION = 2;
const TRUSTED_CERTIFICATE = 2;
/** The usual one, which keeps nothing secret. Java reads the certificates also without it. */
const PASSWORD = 'changeit';
const SALT = 'Mighty Aphrodite';

/**
 * A trust store in Java's own format (JKS), which every release of Java reads without a provider and a password.
 * `certificates`: DER.
 */
export function javaStore(certificates: readonly Buffer[]): Buffer {
  const header = Buffer.concat([MAGIC, VERSION, certificates.length].map(uint32));
  const entries = certificates.flatMap((certificate, index) => [
    uint32(TRUSTED_CERTIFICATE),
    utf(`authority-${index}`),
    // The time of the entry, in milliseconds since 1970. Equal authorities make equal files.
    Buffer.alloc(8),
    utf('X.509'),
    uint32(certificate.length),
    certificate,
  ]);
  const data = Buffer.concat([header, ...entries]);
  const password = Buffer.from(PASSWORD, 'utf16le').swap16();
  return Buffer.concat([data, createHash('sha1').update(password).update(SALT).update(data).digest()]);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** Java's modified UTF-8 equals ASCII here. */
function utf(text: string): Buffer {
  const size = Buffer.alloc(2);
  size.writeUInt16BE(text.length);
  return Buffer.concat([size, Buffer.from(text)]);
}
