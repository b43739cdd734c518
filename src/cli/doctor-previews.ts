import type { Config } from '../config/options.js';
import type { Finding } from '../engine/finding.js';
import { NO_HOST } from '../http/listen.js';
import { readKeyPair } from '../http/tls/key-pair.js';
import { isLocalDomain } from '../previews/host.js';
import { explainDomain, PREVIEW_FLAGS } from '../previews/settings.js';
import { inspectPair, USABLE } from './doctor-tls.js';

const check = 'previews';

type PreviewConfig = Pick<
  Config,
  'previewDomain' | 'previewHost' | 'previewTlsCert' | 'previewTlsKey' | 'advertiseUrl' | 'host'
>;

/** Nothing where previews are off, or have the domain of this machine without TLS, which needs no set-up. */
export function inspectPreviews(options: PreviewConfig): Finding[] {
  const { previewDomain: domain, previewHost, previewTlsCert: cert, previewTlsKey: key } = options;
  const isPlain = isLocalDomain(domain) && cert === undefined && key === undefined;
  if (previewHost === NO_HOST || isPlain) return [];
  const fault = explainDomain(options);
  if (fault !== undefined) {
    return [{ check, state: 'broken', found: fault, remedy: 'give another --preview-domain' }];
  }
  if (cert === undefined && key === undefined) {
    return [{ check, state: 'ok', found: `https at ${domain}, by a reverse proxy that ends TLS` }];
  }
  if (cert === undefined || key === undefined) {
    const remedy = 'give both --preview-tls-cert and --preview-tls-key';
    return [{ check, state: 'broken', found: 'TLS needs two files, and only one is given', remedy }];
  }
  try {
    const files = { cert, key, flags: PREVIEW_FLAGS };
    const { names } = readKeyPair(files);
    if (names.split(', ').includes(`DNS:*.${domain}`)) return [inspectPair(check, files)];
    const found = `the certificate in ${cert} is for ${names}`;
    return [{ check, state: 'broken', found, remedy: `issue one for *.${domain}` }];
  } catch (error) {
    return [{ check, state: 'broken', found: (error as Error).message, remedy: USABLE }];
  }
}
