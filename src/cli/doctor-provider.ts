import { providerSettings, type ProviderOptions } from '../config/provider-settings.js';
import type { Finding } from '../engine/finding.js';

const check = 'sign-in';

/** Nothing without a provider. Reads the metadata of the provider as the service does. */
export async function inspectProvider(options: ProviderOptions): Promise<Finding[]> {
  try {
    const settings = providerSettings(options);
    if (settings === null) return [];
    const { openProvider } = await import('../people/provider.js');
    const facts = await openProvider(settings).describe();
    const found = [
      `${settings.issuer} answers`,
      `it must send browsers back to ${settings.consoleUrl}/sign-in/callback`,
      facts.hasLogout ? 'it has a sign-out' : 'it has no sign-out',
      facts.hasBackChannel
        ? `it can end sessions at ${settings.consoleUrl}/sign-in/back-channel-logout`
        : 'it does not say that it ends sessions by the back channel',
    ];
    return [{ check, state: 'ok', found: found.join('; ') }];
  } catch (error) {
    const remedy = 'compare the options --oidc-… with the provider, and allow its network (docs/sign-in.md)';
    return [{ check, state: 'broken', found: explain(error), remedy }];
  }
}

/** The library's own message says that a request failed; its cause says why. */
function explain(error: unknown): string {
  const { message, cause } = error as Error;
  return cause instanceof Error ? `${message}: ${cause.message}` : message;
}
