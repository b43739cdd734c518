import type { Config } from '../config/options.js';
import { daysLeft, SOON_DAYS } from '../http/tls/certificate.js';
import { readAuthorities, readKeyPair, type KeyPairFiles } from '../http/tls/key-pair.js';
import type { Finding } from '../engine/finding.js';

const check = 'tls';
const RENEW = 'renew the certificate in the same files: the service reads them again by itself';
export const USABLE = 'give the service readable PEM files, the key of the certificate with mode 0600';

/** Nothing where TLS is not configured: a reverse proxy may add it. */
export function inspectTls({
  tlsCert: cert,
  tlsKey: key,
  forwardCa,
}: Pick<Config, 'tlsCert' | 'tlsKey' | 'forwardCa'>): Finding[] {
  if (cert === undefined && key === undefined && forwardCa === undefined) return [];
  try {
    if (forwardCa !== undefined) readAuthorities(forwardCa, '--forward-ca');
    if (cert === undefined && key === undefined) return [];
    if (cert === undefined || key === undefined) {
      const remedy = 'give both --tls-cert and --tls-key';
      return [{ check, state: 'broken', found: 'TLS needs two files, and only one is given', remedy }];
    }
    return [inspectPair(check, { cert, key })];
  } catch (error) {
    return [{ check, state: 'broken', found: (error as Error).message, remedy: USABLE }];
  }
}

/** The state of a pair of files that both are named. Throws ExplainedError for a pair that cannot be served. */
export function inspectPair(check: string, files: KeyPairFiles): Finding {
  const pair = readKeyPair(files);
  const days = daysLeft(pair);
  if (pair.expiresAt <= Date.now()) {
    return { check, state: 'broken', found: `the certificate in ${files.cert} has expired`, remedy: RENEW };
  }
  const found = `certificate for ${pair.names}, valid for ${days} more days`;
  if (days > SOON_DAYS) return { check, state: 'ok', found };
  return { check, state: 'missing', found, remedy: RENEW };
}
