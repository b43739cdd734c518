import { createRemoteJWKSet, customFetch as keysFetch, type JWTVerifyGetKey } from 'jose';
import * as oidc from 'openid-client';
import type { ProviderSettings } from '../config/provider-settings.js';
import { makeGuardedFetch } from '../outbound/fetch.js';
import { isWhole, joinClaims, readIdentity, type Identity } from './identity.js';
import { readLogoutToken, type LogoutToken } from './logout-token.js';

/** Discovered metadata is read again after this time. */
const FRESH_MS = 60 * 60_000;
/** After a failure the metadata is requested again after this time. */
const RETRY_MS = 5_000;

/** The secrets of one sign-in, all derived from the cookie of the browser. */
export interface SignInSecrets {
  state: string;
  nonce: string;
  verifier: string;
}

export interface Provider {
  /** The address to which a browser is sent. */
  authorizationUrl(secrets: SignInSecrets): Promise<URL>;
  /** Exchanges the code of an answer for the identity of the person. `answer`: the query of the browser's request. */
  redeem(answer: URLSearchParams, secrets: SignInSecrets): Promise<Identity>;
  /** The address for the sign-out. Undefined: the provider has none. */
  logoutUrl(idToken: string | undefined): Promise<URL | undefined>;
  /** Verifies a logout token. */
  logout(token: string): Promise<LogoutToken>;
  /** Facts from the metadata of the provider. */
  describe(): Promise<{ hasLogout: boolean; hasBackChannel: boolean }>;
}

interface Discovered {
  config: oidc.Configuration;
  keys: JWTVerifyGetKey;
}

export function openProvider(settings: ProviderSettings): Provider {
  const discovered = cached(() => discover(settings));
  const callback = `${settings.consoleUrl}/sign-in/callback`;
  return {
    async authorizationUrl({ state, nonce, verifier }) {
      const { config } = await discovered();
      return oidc.buildAuthorizationUrl(config, {
        redirect_uri: callback,
        scope: settings.scopes,
        code_challenge: await oidc.calculatePKCECodeChallenge(verifier),
        code_challenge_method: 'S256',
        state,
        nonce,
      });
    },
    async redeem(answer, { state, nonce, verifier }) {
      const { config } = await discovered();
      // Not the address of the request, whose host the client chooses.
      const url = new URL(`${callback}?${answer.toString()}`);
      const tokens = await oidc.authorizationCodeGrant(config, url, {
        expectedState: state,
        expectedNonce: nonce,
        pkceCodeVerifier: verifier,
        idTokenExpected: true,
      });
      const claims = tokens.claims()!;
      const more =
        isWhole(claims, settings) || config.serverMetadata().userinfo_endpoint === undefined
          ? {}
          : await oidc.fetchUserInfo(config, tokens.access_token, claims.sub);
      return readIdentity(joinClaims(claims, more, settings), tokens.id_token!, settings);
    },
    async logoutUrl(idToken) {
      const { config } = await discovered();
      if (config.serverMetadata().end_session_endpoint === undefined) return undefined;
      return oidc.buildEndSessionUrl(config, {
        post_logout_redirect_uri: `${settings.consoleUrl}/sign-in`,
        ...(idToken === undefined ? {} : { id_token_hint: idToken }),
      });
    },
    async logout(token) {
      const { keys } = await discovered();
      return readLogoutToken(token, keys, settings);
    },
    async describe() {
      const { config } = await discovered();
      const { end_session_endpoint, backchannel_logout_supported } = config.serverMetadata();
      return {
        hasLogout: end_session_endpoint !== undefined,
        hasBackChannel: backchannel_logout_supported === true,
      };
    },
  };
}

/** In the body where the provider says so, else in a header, as is the default of OpenID Connect. */
function bySecret(secret: string): oidc.ClientAuth {
  const [inBody, inHeader] = [oidc.ClientSecretPost(secret), oidc.ClientSecretBasic(secret)];
  return (server, client, body, headers) => {
    const isInBody = server.token_endpoint_auth_methods_supported?.includes('client_secret_post') === true;
    (isInBody ? inBody : inHeader)(server, client, body, headers);
  };
}

async function discover(settings: ProviderSettings): Promise<Discovered> {
  const fetch = makeGuardedFetch(settings);
  const { issuer, clientId, clientSecret, timeoutMs } = settings;
  const authentication = clientSecret === undefined ? oidc.None() : bySecret(clientSecret);
  const config = await oidc.discovery(new URL(issuer), clientId, clientSecret, authentication, {
    timeout: timeoutMs / 1_000,
    [oidc.customFetch]: fetch,
    // The signature of ID tokens is verified although TLS vouches for them. The address guard decides about http.
    execute: [oidc.enableNonRepudiationChecks, ...(settings.reach.http ? [oidc.allowInsecureRequests] : [])],
  });
  const { jwks_uri: keysUrl } = config.serverMetadata();
  if (keysUrl === undefined) throw new Error('the provider names no keys: its metadata has no jwks_uri');
  const keys = createRemoteJWKSet(new URL(keysUrl), {
    timeoutDuration: timeoutMs,
    [keysFetch]: (url, { headers, signal }) => fetch(url, { headers, signal }),
  });
  return { config, keys };
}

/** Calls share one discovery. A failure is remembered for a moment, so that clients cannot make the service hammer. */
function cached<T>(load: () => Promise<T>): () => Promise<T> {
  let current: { value: Promise<T>; until: number } | undefined;
  return async () => {
    if (current && performance.now() < current.until) return current.value;
    const entry = { value: load(), until: performance.now() + FRESH_MS };
    current = entry;
    return entry.value.catch((error: unknown) => {
      entry.until = performance.now() + RETRY_MS;
      throw error;
    });
  };
}
