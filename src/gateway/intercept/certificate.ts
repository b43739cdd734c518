/**
 * Makes X.509 certificates: the authority of an installation, and the leaf certificates that the gateway shows to
 * sandboxes. Keys are P-256. The library has the structures and their encoding; Node signs.
 */
import { AsnConvert, OctetString } from '@peculiar/asn1-schema';
import {
  AlgorithmIdentifier,
  AttributeTypeAndValue,
  AttributeValue,
  AuthorityKeyIdentifier,
  BasicConstraints,
  Certificate,
  ExtendedKeyUsage,
  Extension,
  Extensions,
  GeneralName,
  GeneralSubtree,
  GeneralSubtrees,
  KeyIdentifier,
  KeyUsage,
  KeyUsageFlags,
  Name,
  NameConstraints,
  RelativeDistinguishedName,
  SubjectAlternativeName,
  SubjectKeyIdentifier,
  SubjectPublicKeyInfo,
  TBSCertificate,
  Validity,
  Version,
  id_ce_authorityKeyIdentifier,
  id_ce_basicConstraints,
  id_ce_extKeyUsage,
  id_ce_keyUsage,
  id_ce_nameConstraints,
  id_ce_subjectAltName,
  id_ce_subjectKeyIdentifier,
  id_kp_serverAuth,
} from '@peculiar/asn1-x509';
import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  randomBytes,
  sign,
  X509Certificate,
  type KeyObject,
} from 'node:crypto';
import type { Authority } from '../protocol.js';

const ECDSA_WITH_SHA256 = '1.2.840.10045.4.3.2';
const COMMON_NAME = '2.5.4.3';
const ORGANIZATION = '2.5.4.10';
/** The longest common name that X.509 allows. */
const LONGEST_COMMON_NAME = 64;
const HOUR_MS = 3_600_000;
const AUTHORITY_YEARS = 10;
/** The clock of a sandbox or of another machine may be behind. */
const EARLIER_MS = HOUR_MS;

/** An authority that signs, with its certificate as an issuer. */
export interface Signer {
  /** PEM. */
  certificate: string;
  key: KeyObject;
  issuer: Name;
  keyId: Buffer;
}

/** `label` tells the authorities of installations apart, for people. */
export function makeAuthority(label: string, now = Date.now()): Authority {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const name = nameOf([
    [ORGANIZATION, 'Sandkeep'],
    [COMMON_NAME, `Sandkeep interception ${label}`.slice(0, LONGEST_COMMON_NAME)],
  ]);
  const keyId = keyIdOf(publicKey);
  // It signs names only. A name constraint that excludes every address keeps a stolen key from others.
  const excluded = ['0.0.0.0/0', '::/0'].map(
    (iPAddress) => new GeneralSubtree({ base: new GeneralName({ iPAddress }) }),
  );
  const extensions = [
    extension(id_ce_basicConstraints, new BasicConstraints({ cA: true, pathLenConstraint: 0 }), true),
    extension(id_ce_keyUsage, new KeyUsage(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign), true),
    extension(
      id_ce_nameConstraints,
      new NameConstraints({ excludedSubtrees: new GeneralSubtrees(excluded) }),
      true,
    ),
    extension(id_ce_subjectKeyIdentifier, new SubjectKeyIdentifier(keyId)),
  ];
  const notAfter = new Date(now);
  notAfter.setUTCFullYear(notAfter.getUTCFullYear() + AUTHORITY_YEARS);
  const certificate = signCertificate(
    { issuer: name, subject: name, publicKey, extensions, notBefore: new Date(now - EARLIER_MS), notAfter },
    privateKey,
  );
  return {
    certificate,
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
  };
}

/** Throws when the two do not belong together. */
export function openAuthority({ certificate, key: pem }: Authority): Signer {
  const parsed = new X509Certificate(certificate);
  const key = createPrivateKey(pem);
  if (!parsed.checkPrivateKey(key)) throw new Error('the key is not that of the certificate');
  const { subject } = AsnConvert.parse(parsed.raw, Certificate).tbsCertificate;
  return { certificate: parsed.toString(), key, issuer: subject, keyId: keyIdOf(parsed.publicKey) };
}

/** PEM. `name` is canonical. */
export function makeLeaf(
  signer: Signer,
  publicKey: KeyObject,
  name: string,
  validityHours: number,
  now = Date.now(),
): string {
  const isShort = name.length <= LONGEST_COMMON_NAME;
  const extensions = [
    extension(id_ce_basicConstraints, new BasicConstraints({ cA: false }), true),
    extension(id_ce_keyUsage, new KeyUsage(KeyUsageFlags.digitalSignature), true),
    extension(id_ce_extKeyUsage, new ExtendedKeyUsage([id_kp_serverAuth])),
    extension(
      id_ce_subjectAltName,
      new SubjectAlternativeName([new GeneralName({ dNSName: name })]),
      // RFC 5280: critical when the subject is empty.
      !isShort,
    ),
    extension(id_ce_subjectKeyIdentifier, new SubjectKeyIdentifier(keyIdOf(publicKey))),
    extension(
      id_ce_authorityKeyIdentifier,
      new AuthorityKeyIdentifier({ keyIdentifier: new KeyIdentifier(signer.keyId) }),
    ),
  ];
  return signCertificate(
    {
      issuer: signer.issuer,
      subject: nameOf(isShort ? [[COMMON_NAME, name]] : []),
      publicKey,
      extensions,
      notBefore: new Date(now - EARLIER_MS),
      notAfter: new Date(now + validityHours * HOUR_MS),
    },
    signer.key,
  );
}

interface Fields {
  issuer: Name;
  subject: Name;
  publicKey: KeyObject;
  extensions: Extension[];
  notBefore: Date;
  notAfter: Date;
}

function signCertificate(fields: Fields, key: KeyObject): string {
  const algorithm = new AlgorithmIdentifier({ algorithm: ECDSA_WITH_SHA256 });
  const tbsCertificate = new TBSCertificate({
    version: Version.v3,
    serialNumber: serialNumber(),
    signature: algorithm,
    issuer: fields.issuer,
    validity: new Validity({ notBefore: fields.notBefore, notAfter: fields.notAfter }),
    subject: fields.subject,
    subjectPublicKeyInfo: AsnConvert.parse(spkiOf(fields.publicKey), SubjectPublicKeyInfo),
    extensions: new Extensions(fields.extensions),
  });
  const signature = sign('sha256', Buffer.from(AsnConvert.serialize(tbsCertificate)), key);
  const certificate = new Certificate({
    tbsCertificate,
    signatureAlgorithm: algorithm,
    signatureValue: toArrayBuffer(signature),
  });
  return new X509Certificate(Buffer.from(AsnConvert.serialize(certificate))).toString();
}

function extension(extnID: string, value: object, critical = false): Extension {
  return new Extension({ extnID, critical, extnValue: new OctetString(AsnConvert.serialize(value)) });
}

function nameOf(parts: readonly (readonly [type: string, value: string])[]): Name {
  return new Name(
    parts.map(
      ([type, utf8String]) =>
        new RelativeDistinguishedName([
          new AttributeTypeAndValue({ type, value: new AttributeValue({ utf8String }) }),
        ]),
    ),
  );
}

/** Positive, and different for each certificate. */
function serialNumber(): ArrayBuffer {
  const bytes = randomBytes(16);
  bytes[0] = (bytes[0]! & 0x3f) | 0x40;
  return toArrayBuffer(bytes);
}

function spkiOf(key: KeyObject): Buffer {
  const publicKey = key.type === 'private' ? createPublicKey(key) : key;
  return publicKey.export({ type: 'spki', format: 'der' });
}

function keyIdOf(key: KeyObject): Buffer {
  return createHash('sha1').update(spkiOf(key)).digest();
}

function toArrayBuffer(bytes: Buffer): ArrayBuffer {
  return new Uint8Array(bytes).buffer;
}
