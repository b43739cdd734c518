import { AsnConvert } from '@peculiar/asn1-schema';
import { Certificate } from '@peculiar/asn1-x509';
import { createHash, X509Certificate } from 'node:crypto';

const BLOCK =
  /-----BEGIN (?:TRUSTED )?CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END (?:TRUSTED )?CERTIFICATE-----\n?/g;
/** In the names of the authorities of every installation, also of earlier ones of this one. */
export const OUR_NAME = 'Sandkeep interception';

/** The text of a certificate, and its DER in base64 without line breaks, which two texts of one certificate share. */
export interface Block {
  text: string;
  der: string;
}

export function certificatesIn(pem: string): Block[] {
  return Array.from(pem.matchAll(BLOCK), ([text, base64]) => ({ text, der: base64!.replaceAll(/\s/g, '') }));
}

/** Each certificate once, in the order of the texts, ending in line breaks. */
export function distinct(texts: readonly string[]): Block[] {
  const found = new Map<string, Block>();
  for (const block of texts.flatMap(certificatesIn)) {
    if (!found.has(block.der)) found.set(block.der, { ...block, text: `${block.text.trim()}\n` });
  }
  return [...found.values()];
}

/** A bundle with these authorities, and without those that an earlier start has added. Its other text stays. */
export function withAuthorities(bundle: string, added: readonly Block[]): string {
  const wanted = new Set(added.map(({ der }) => der));
  const present = new Set<string>();
  const kept = bundle.replaceAll(BLOCK, (text, base64: string) => {
    const der = base64.replaceAll(/\s/g, '');
    const isOld = !wanted.has(der) && Buffer.from(der, 'base64').includes(OUR_NAME);
    present.add(der);
    return isOld ? '' : text;
  });
  const missing = added.filter(({ der }) => !present.has(der)).map(({ text }) => text);
  if (missing.length === 0) return kept;
  return (kept === '' || kept.endsWith('\n') ? kept : `${kept}\n`) + missing.join('');
}

/** As DER, without the ones that no program could read. */
export function readable(blocks: readonly Block[]): Buffer[] {
  return blocks.flatMap(({ der }) => {
    try {
      return [new X509Certificate(Buffer.from(der, 'base64')).raw];
    } catch {
      return [];
    }
  });
}

/**
 * The name under which OpenSSL looks for a certificate in a directory, without its number: the first four bytes, the
 * last one first, of the SHA-1 of the subject. Each of its values counts in lower case, with single spaces, as UTF-8.
 */
export function subjectHash(pem: string): string {
  const { subject } = AsnConvert.parse(new X509Certificate(pem).raw, Certificate).tbsCertificate;
  const parts = subject.map((part) => {
    for (const { value } of part) {
      const text = value.toString().trim().replaceAll(/\s+/g, ' ');
      value.utf8String = text.replaceAll(/[A-Z]/g, (letter) => letter.toLowerCase());
    }
    return Buffer.from(AsnConvert.serialize(part));
  });
  return createHash('sha1')
    .update(Buffer.concat(parts))
    .digest()
    .readUInt32LE()
    .toString(16)
    .padStart(8, '0');
}
