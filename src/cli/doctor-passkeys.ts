import type { Config } from '../config/options.js';
import { passkeySettings } from '../config/passkey-settings.js';
import type { Finding } from '../engine/finding.js';
import { counted } from '../lib/counted.js';
import type { StoredInstallation } from './doctor-installation.js';

const check = 'passkeys';
const DOCS = 'docs/sign-in.md#by-a-passkey';

/** Where members sign in with passkeys. Names those of the database that sign nobody in. */
export function inspectPasskeys(
  options: Pick<Config, 'publicUrl' | 'passkeys' | 'oidcIssuer'>,
  stored: StoredInstallation | undefined,
): Finding {
  try {
    const settings = passkeySettings(options);
    const held = stored?.passkeys ?? 0;
    const count = stored === undefined ? '' : `; ${counted(held, 'passkey', 'passkeys')} in the database`;
    if (!('off' in settings)) {
      const place = settings.origin ?? 'http://localhost alone; --public-url is for browsers elsewhere';
      return { check, state: 'ok', found: `members sign in with them at ${place}${count}` };
    }
    const found = `${settings.off.replace(/\.$/, '')}${count}`;
    const isIntended = options.passkeys === 'off' || (options.oidcIssuer ?? '') !== '';
    if (isIntended && held === 0) return { check, state: 'ok', found };
    const remedy = isIntended
      ? `set --passkeys on, or remove them: sandkeep member remove-passkeys (${DOCS})`
      : `set --public-url to an https URL with a host name (${DOCS})`;
    return { check, state: 'missing', found, remedy };
  } catch (error) {
    const remedy = `set --public-url, or --passkeys off (${DOCS})`;
    return { check, state: 'broken', found: (error as Error).message, remedy };
  }
}
