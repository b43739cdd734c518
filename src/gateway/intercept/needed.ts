import { isIP } from 'node:net';
import { isWithinDomain } from '../../network-policy/domains.js';
import type { GatedSecret } from '../protocol.js';
import type { GatedSandbox } from '../sandbox.js';
import { matchesHost } from '../secrets/allowed-hosts.js';

/** Whether a TLS connection is decrypted: a secret is for its name, or the sandbox asked for everything. */
export function needsDecryption({ settings }: GatedSandbox, name: string, port: number): boolean {
  const { tls, secrets } = settings;
  // The authority signs no addresses.
  if (isIP(name) !== 0) return false;
  if (!tls.ports.includes(port) || tls.bypass.some((pattern) => matchesPattern(pattern, name))) return false;
  return tls.enabled || hasSecretFor(secrets, name);
}

/** Whether a secret may be put into requests to the name. */
export function hasSecretFor(secrets: readonly GatedSecret[], name: string): boolean {
  return secrets.some(({ allowedHosts }) => allowedHosts.some((host) => matchesHost(host, name)));
}

/** `pattern`: an exact name, or `*.suffix`, which matches the apex too. */
export function matchesPattern(pattern: string, name: string): boolean {
  return pattern.startsWith('*.') ? isWithinDomain(name, pattern.slice(2)) : pattern === name;
}
