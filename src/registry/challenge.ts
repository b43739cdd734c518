/** The way in which a registry wants credentials, from the header `www-authenticate` (RFC 9110, section 11). */
export type Challenge =
  { scheme: 'basic' } | { scheme: 'bearer'; realm: string; service: string | undefined };

/** Real ones have some hundred characters. The patterns below take a time that grows with the square of the length. */
const LONGEST = 2_048;

export function parseChallenge(header: string | undefined): Challenge | undefined {
  if (header !== undefined && header.length > LONGEST) return undefined;
  const bearer = /(?:^|,)\s*bearer\s+(.*)$/i.exec(header ?? '')?.[1];
  if (bearer !== undefined) {
    const parameters = new Map(
      [...bearer.matchAll(/(\w+)="([^"]*)"/g)].map(([, name, value]) => [name, value]),
    );
    const realm = parameters.get('realm');
    return realm === undefined ? undefined : { scheme: 'bearer', realm, service: parameters.get('service') };
  }
  return /(?:^|,)\s*basic(?:\s|$)/i.test(header ?? '') ? { scheme: 'basic' } : undefined;
}
