import type { PasskeySettings, RelyingParty } from '../../config/passkey-settings.js';
import type { Client } from '../../http/client-address.js';
import { ApiError } from '../../http/errors.js';

/** Throws ApiError, which tells people why there are no passkeys at the address that the client used. */
export function relyingPartyOf(
  settings: PasskeySettings,
  client: Pick<Client, 'host' | 'isHttps'>,
): RelyingParty {
  const reason = reasonAgainst(settings, client);
  if (reason !== null || 'off' in settings) throw new ApiError('passkeys_unavailable', reason ?? undefined);
  return { id: settings.id, origin: settings.origin ?? originOf(client)! };
}

/** Null: passkeys work here. */
export function reasonAgainst(
  settings: PasskeySettings,
  client: Pick<Client, 'host' | 'isHttps'>,
): string | null {
  if ('off' in settings) return settings.off;
  const used = originOf(client);
  if (settings.origin === undefined) {
    return used !== undefined && new URL(used).hostname === settings.id
      ? null
      : 'Passkeys work only at http://localhost, since the operator has set no --public-url.';
  }
  // A proxy may end TLS: the browser signs the whole origin.
  return used !== undefined && new URL(used).hostname === settings.id
    ? null
    : `Passkeys work only at ${settings.origin}: open the console there.`;
}

function originOf({ host, isHttps }: Pick<Client, 'host' | 'isHttps'>): string | undefined {
  const address = `${isHttps ? 'https' : 'http'}://${host}`;
  return host !== undefined && URL.canParse(address) ? new URL(address).origin : undefined;
}
