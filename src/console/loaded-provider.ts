import type { ProviderSettings } from '../config/provider-settings.js';
import type { Provider } from '../people/provider.js';

export interface LoadedProvider extends Omit<Provider, 'describe'> {
  settings: ProviderSettings;
}

/** The library of the provider is loaded with the first sign-in. */
export function loadProvider(settings: ProviderSettings): LoadedProvider {
  let opened: Promise<Provider> | undefined;
  const open = () =>
    (opened ??= import('../people/provider.js').then((module) => module.openProvider(settings)));
  return {
    settings,
    authorizationUrl: async (secrets) => (await open()).authorizationUrl(secrets),
    redeem: async (answer, secrets) => (await open()).redeem(answer, secrets),
    logout: async (token) => (await open()).logout(token),
    logoutUrl: async (idToken) => (await open()).logoutUrl(idToken),
  };
}
