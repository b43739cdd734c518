import { jwtVerify, type JWTVerifyGetKey } from 'jose';
import type { ProviderSettings } from '../config/provider-settings.js';

const EVENT = 'http://schemas.openid.net/event/backchannel-logout';
/** An older token is refused, and the used ones are remembered for longer. */
const MAX_AGE_SECS = 5 * 60;
const CLOCK_TOLERANCE_SECS = 60;
export const LOGOUT_TOKEN_KEPT_MS = 2 * (MAX_AGE_SECS + CLOCK_TOLERANCE_SECS) * 1_000;
const ALGORITHMS = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
];
const LONGEST = 255;

export interface LogoutToken {
  /** Its name: a second token with it is a replay. */
  jti: string;
  /** Null: every session of the person. */
  sid: string | null;
  subject: string | null;
}

/** Verifies a token of OpenID Connect Back-Channel Logout 1.0, section 2.6. Throws when it is not valid. */
export async function readLogoutToken(
  token: string,
  keys: JWTVerifyGetKey,
  { issuer, clientId }: Pick<ProviderSettings, 'issuer' | 'clientId'>,
): Promise<LogoutToken> {
  const { payload, protectedHeader } = await jwtVerify(token, keys, {
    issuer,
    audience: clientId,
    algorithms: ALGORITHMS,
    maxTokenAge: MAX_AGE_SECS,
    clockTolerance: CLOCK_TOLERANCE_SECS,
    requiredClaims: ['jti', 'iat'],
  });
  const { jti, sub, sid, events, nonce } = payload;
  const { typ } = protectedHeader;
  // An ID token has no such event, and a nonce. Some providers name no type.
  const isEvent = typeof events === 'object' && events !== null && EVENT in events;
  if (!isEvent || nonce !== undefined) throw new Error('the token is not a logout token');
  if (typ !== undefined && !/^(application\/)?(logout\+jwt|jwt)$/i.test(typ)) {
    throw new Error(`the type ${typ} is not that of a logout token`);
  }
  const named = { jti: textOf(jti), sid: textOf(sid), subject: textOf(sub) };
  if (named.jti === null) throw new Error('the logout token has no jti');
  if (named.sid === null && named.subject === null)
    throw new Error('the logout token has neither sid nor sub');
  return { ...named, jti: named.jti };
}

function textOf(claim: unknown): string | null {
  return typeof claim === 'string' && claim !== '' && claim.length <= LONGEST ? claim : null;
}
