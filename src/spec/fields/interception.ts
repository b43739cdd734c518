import { X509Certificate } from 'node:crypto';
import { Type } from 'typebox';
import { Field, Nullable } from '../../http/schema.js';
import { canonicalName } from '../../network-policy/domains.js';
import { field } from '../field.js';
import { TlsConfig, type TlsRequest } from '../network-schema.js';
import { refuse } from '../refuse.js';
import { MOST } from '../size-limits.js';

const LARGEST_CACHE = 10_000;
/** Some clients refuse certificates that are valid for longer. */
const LONGEST_VALIDITY_HOURS = 9_480;

export const tls = field({
  schema: Field(Nullable(TlsConfig), 'The interception of TLS connections. Null: only for secrets.'),
  answer: Type.Optional(Field(Nullable(TlsConfig), 'The interception of TLS connections.')),
  default: null,
  check(value, { field: path }) {
    if (value) checkTls(value, path);
  },
  requires: (value) => [
    value !== null &&
      value.enabled !== false &&
      Object.keys(value).length > 0 && {
        capability: 'tls_interception',
        what: 'look into encrypted connections',
      },
  ],
  show: (value) => value ?? undefined,
});

/** The most entries of each list. Imported specifications of the past may have more, so the schema has no limit. */
const LISTS = {
  intercepted_ports: MOST.ports,
  bypass: MOST.hosts,
  upstream_ca_cert: MOST.authorities,
  scoped_upstream_ca_cert: MOST.authorities,
  scoped_verify_upstream: MOST.hosts,
} as const;

function checkTls(tls: TlsRequest, path: string): void {
  for (const [name, most] of Object.entries(LISTS)) {
    const { length } = tls[name as keyof typeof LISTS] ?? [];
    if (length > most)
      refuse(`${path}.${name}`, `${name} has at most ${most} entries, and this one has ${length}`);
  }
  for (const [index, port] of (tls.intercepted_ports ?? []).entries())
    if (port < 1 || port > 65_535) refuse(`${path}.intercepted_ports[${index}]`, 'a port is 1 to 65535');
  for (const [index, pattern] of (tls.bypass ?? []).entries())
    checkPattern(pattern, `${path}.bypass[${index}]`);
  for (const [index, text] of (tls.upstream_ca_cert ?? []).entries())
    checkPem(text, `${path}.upstream_ca_cert[${index}]`);
  for (const [index, { pattern, path: text }] of (tls.scoped_upstream_ca_cert ?? []).entries()) {
    checkPattern(pattern, `${path}.scoped_upstream_ca_cert[${index}].pattern`);
    checkPem(text, `${path}.scoped_upstream_ca_cert[${index}].path`);
  }
  for (const [index, { pattern }] of (tls.scoped_verify_upstream ?? []).entries())
    checkPattern(pattern, `${path}.scoped_verify_upstream[${index}].pattern`);
  const { cert_path, key_path } = tls.intercept_ca ?? {};
  if (cert_path != null || key_path != null)
    refuse(`${path}.intercept_ca`, 'the installation has an authority of its own: leave intercept_ca out');
  const { capacity = 1, validity_hours: hours = 24 } = tls.cache ?? {};
  if (capacity < 1 || capacity > LARGEST_CACHE)
    refuse(`${path}.cache.capacity`, `a cache has 1 to ${LARGEST_CACHE} certificates`);
  if (hours < 1 || hours > LONGEST_VALIDITY_HOURS)
    refuse(`${path}.cache.validity_hours`, `a certificate is valid for 1 to ${LONGEST_VALIDITY_HOURS} hours`);
}

function checkPattern(pattern: string, path: string): void {
  if (canonicalName(pattern.replace(/^\*\./, '')) === undefined)
    refuse(path, 'a pattern is a domain, such as example.com, or a wildcard, such as *.example.com');
}

/** A path would be one of the caller's machine, which the service cannot read. */
function checkPem(text: string, path: string): void {
  if (!isCertificate(text))
    refuse(path, 'send the certificate itself, as PEM text: the service does not read files of its callers');
}

function isCertificate(text: string): boolean {
  try {
    return new X509Certificate(text).raw.length > 0;
  } catch {
    return false;
  }
}
