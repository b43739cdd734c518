import type { Config } from '../config/options.js';

export const PREVIEW_FLAGS = { cert: '--preview-tls-cert', key: '--preview-tls-key' };

/**
 * A sentence for a domain that holds the API. Undefined: the API is elsewhere, as far as the options say. Pages of
 * previews can set cookies for the domain and every name below it, and are of one site with them. The domain
 * `localhost` is safe: browsers refuse cookies for all of it.
 */
export function explainDomain({
  previewDomain: domain,
  advertiseUrl,
  host,
}: Pick<Config, 'previewDomain' | 'advertiseUrl' | 'host'>): string | undefined {
  const names = [host, ...(advertiseUrl === undefined ? [] : [new URL(advertiseUrl).hostname])];
  const name = names.find((known) => known === domain || known.endsWith(`.${domain}`));
  if (name === undefined || domain === 'localhost') return undefined;
  return `the API is at ${name}, which is in the domain of previews: choose another --preview-domain than ${domain}`;
}
