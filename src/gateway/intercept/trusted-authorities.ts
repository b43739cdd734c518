import { readFileSync } from 'node:fs';
import { createSecureContext, rootCertificates, type SecureContext } from 'node:tls';
import type { TlsSettings } from '../protocol.js';
import { matchesPattern } from './needed.js';

/** Where distributions keep the authorities that the machine trusts. */
const BUNDLES = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/ca-bundle.pem',
  '/etc/ssl/cert.pem',
];
/** Contexts with authorities of tenants. To parse the roots of a machine takes some 20 ms and 1 MiB. */
const MOST_CONTEXTS = 64;

/** The authorities that may sign for a server, as contexts of TLS clients. */
export class TrustedAuthorities {
  private roots: string[] | undefined;
  private readonly contexts = new Map<string, SecureContext>();

  constructor(private readonly bundles: readonly string[] = BUNDLES) {}

  contextFor({ authorities }: TlsSettings, name: string): SecureContext {
    const scoped = authorities
      .filter(({ pattern }) => pattern === undefined || matchesPattern(pattern, name))
      .map(({ pem }) => pem);
    const key = scoped.join('\n');
    const known = this.contexts.get(key);
    this.contexts.delete(key);
    const context =
      known ?? createSecureContext({ ca: [...this.rootsOfMachine(), ...scoped], minVersion: 'TLSv1.2' });
    for (const oldest of this.contexts.keys()) {
      if (this.contexts.size < MOST_CONTEXTS) break;
      this.contexts.delete(oldest);
    }
    this.contexts.set(key, context);
    return context;
  }

  /** Those of Node, if the machine has none. */
  private rootsOfMachine(): string[] {
    this.roots ??= readFirst(this.bundles) ?? [...rootCertificates];
    return this.roots;
  }
}

function readFirst(files: readonly string[]): string[] | undefined {
  for (const file of files) {
    try {
      return [readFileSync(file, 'utf8')];
    } catch {
      // The next distribution.
    }
  }
  return undefined;
}

/** The first matching rule decides. */
export function isVerified({ verifyUpstream, scopedVerify }: TlsSettings, name: string): boolean {
  return scopedVerify.find(({ pattern }) => matchesPattern(pattern, name))?.verify ?? verifyUpstream;
}
