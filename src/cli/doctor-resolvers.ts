import type { Resolvers } from '../engines/docker/network/resolvers.js';
import type { Finding } from './doctor-finding.js';

/** `named`: by the operator, in place of those of the machine. */
export function resolversFinding(
  { addresses, unusable, isFallback }: Resolvers,
  named: readonly string[],
): Finding {
  const check = 'resolvers';
  const asked = named.length > 0 ? named : addresses;
  if (named.length > 0 || !isFallback)
    return { check, state: 'ok', found: `sandboxes ask ${asked.join(', ')}` };
  const why =
    unusable.length === 0
      ? 'this machine names no resolver'
      : `sandboxes cannot ask the resolvers of this machine (${unusable.join(', ')}), which are IPv6 or its own loopback`;
  return {
    check,
    state: 'missing',
    found: `${why}: they ask ${asked.join(', ')}`,
    remedy: 'name IPv4 resolvers with --docker-resolvers, or in /etc/resolv.conf',
  };
}
