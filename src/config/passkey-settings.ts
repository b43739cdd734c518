import { isIP } from 'node:net';
import { ExplainedError } from '../lib/explained-error.js';
import type { Config } from './options.js';

/** The service as browsers and authenticators know it. */
export interface RelyingParty {
  /** The host name that passkeys are bound to. */
  id: string;
  /** The origin of the console. */
  origin: string;
}

/**
 * Undefined for `origin`: no public URL is set, and passkeys work at localhost, at any port. `off`: the reason, as a
 * sentence.
 */
export type PasskeySettings =
  (Omit<RelyingParty, 'origin'> & { origin: string | undefined }) | { off: string };

/** Throws ExplainedError when passkeys are wanted at a URL at which browsers have none. */
export function passkeySettings({
  publicUrl,
  passkeys,
  oidcIssuer = '',
}: Pick<Config, 'publicUrl' | 'passkeys' | 'oidcIssuer'>): PasskeySettings {
  if (passkeys === 'off' || (passkeys === 'auto' && oidcIssuer !== '')) {
    return { off: 'The operator has not turned passkeys on.' };
  }
  if (publicUrl === undefined) return { id: 'localhost', origin: undefined };
  const fault = faultOf(new URL(publicUrl));
  if (fault === undefined) return { id: new URL(publicUrl).hostname, origin: publicUrl };
  if (passkeys === 'on') {
    throw new ExplainedError(
      `--passkeys on cannot work at ${publicUrl}: ${fault}; set --public-url to a URL such as https://sandkeep.example.com`,
    );
  }
  return { off: `There are no passkeys at ${publicUrl}: ${fault}. The operator sets --public-url.` };
}

function faultOf({ protocol, hostname }: URL): string | undefined {
  if (isIP(hostname.replaceAll(/[[\]]/g, '')) !== 0) return 'an IP address has no passkeys';
  const isLocal = /^(?:.+\.)?localhost$/.test(hostname);
  return protocol === 'https:' || isLocal ? undefined : 'browsers have passkeys only over https';
}
