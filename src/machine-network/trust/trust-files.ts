import { GUEST_DIRECTORY } from '../../guest/programs.js';
import type { RunSpec } from '../../spec/run-spec.js';

const TRUST_DIRECTORY = `${GUEST_DIRECTORY}/trust`;

/** The files of the service in a sandbox that trusts more than its image does. The sandbox cannot write them. */
export const TRUST_FILES = {
  /** The authorities that its image does not have. */
  added: `${TRUST_DIRECTORY}/added.pem`,
  /** All authorities. A link, where the image has a bundle: programs of the sandbox add to that one. */
  all: `${TRUST_DIRECTORY}/all.pem`,
  /** All authorities, for Java. */
  java: `${TRUST_DIRECTORY}/all.jks`,
} as const;

const { added, all, java } = TRUST_FILES;

/** The variables by which programs that ignore the store of the system find the authorities. */
const VARIABLES: readonly (readonly [name: string, value: string])[] = [
  ['SSL_CERT_FILE', all],
  ['CURL_CA_BUNDLE', all],
  ['REQUESTS_CA_BUNDLE', all],
  ['PIP_CERT', all],
  ['GIT_SSL_CAINFO', all],
  ['AWS_CA_BUNDLE', all],
  ['CARGO_HTTP_CAINFO', all],
  // These two add to the authorities that the programs bring along.
  ['NODE_EXTRA_CA_CERTS', added],
  ['DENO_CERT', added],
  // By its path alone Java expects PKCS #12.
  ['JAVA_TOOL_OPTIONS', `-Djavax.net.ssl.trustStore=${java} -Djavax.net.ssl.trustStoreType=jks`],
];

/** The sandbox must trust the authority of the interception. */
export function trustsInterception({ gated }: Pick<RunSpec, 'gated'>): boolean {
  return gated != null && (gated.tls.enabled || gated.secrets.length > 0);
}

export function trustsMore(spec: Pick<RunSpec, 'gated' | 'trustHostCas'>): boolean {
  return spec.trustHostCas === true || trustsInterception(spec);
}

/** `taken`: the variables that the image or the request sets. */
export function trustVariables(spec: RunSpec, taken: readonly string[]): string[] {
  if (!trustsMore(spec)) return [];
  return VARIABLES.filter(([name]) => !taken.includes(name)).map(([name, value]) => `${name}=${value}`);
}
