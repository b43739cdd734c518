import { createHash } from 'node:crypto';
import { rootCertificates } from 'node:tls';
import type { GatewayServices } from '../../engine/definition.js';
import type { RunSpec } from '../../spec/run-spec.js';
import { certificatesIn, distinct, readable, type Block } from './certificates.js';
import { javaStore } from './java-store.js';
import { machineAuthorities } from './machine-authorities.js';
import { trustsInterception } from './trust-files.js';

/** That of a distribution has 230 KiB. A larger one stays as it is, and nothing reads more of it. */
export const LARGEST_BUNDLE = 2 * 1024 * 1024;
/** A distribution has 150. */
const MOST_CERTIFICATES = 1_000;
/** The file of our authority in a directory of certificates. */
export const OWN_FILE = 'sandkeep.pem';

/** The authorities to add, as texts of PEM. */
export interface Authorities {
  /** That of the interception. */
  own: string | undefined;
  /** Those of the machine. */
  machine: readonly string[];
}

/** At each start: the authority of the interception may be another one by now. */
export async function authoritiesFor(
  spec: RunSpec,
  services: Pick<GatewayServices, 'authority'> | undefined,
): Promise<Authorities> {
  return {
    own: trustsInterception(spec) ? (await services?.authority())?.certificate : undefined,
    machine: spec.trustHostCas === true ? await machineAuthorities() : [],
  };
}

export function addedAuthorities({ own, machine }: Authorities): Block[] {
  return distinct([...(own === undefined ? [] : [own]), ...machine]).slice(0, MOST_CERTIFICATES);
}

/** The bundle of a sandbox whose image has none. */
export function ownBundle(added: readonly Block[]): string {
  return [...rootCertificates.map((root) => `${root.trim()}\n`), ...added.map(({ text }) => text)].join('');
}

/** To check the certificates of a distribution takes 10 ms, and most sandboxes have the same ones. */
const MADE_STORES = new Map<string, Buffer>();
const MOST_STORES = 16;

/** The authorities of a bundle, for Java. */
export function javaStoreOf(bundle: string): Buffer {
  const key = createHash('sha256').update(bundle).digest('base64');
  const made =
    MADE_STORES.get(key) ?? javaStore(readable(certificatesIn(bundle).slice(0, MOST_CERTIFICATES)));
  MADE_STORES.delete(key);
  MADE_STORES.set(key, made);
  for (const oldest of MADE_STORES.keys()) {
    if (MADE_STORES.size <= MOST_STORES) break;
    MADE_STORES.delete(oldest);
  }
  return made;
}
