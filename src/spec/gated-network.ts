import type { Static } from 'typebox';
import type { GatedSecret, TlsSettings } from '../gateway/protocol.js';
import { hasDomainRules } from '../network-policy/domains.js';
import type { NetworkPolicy } from '../network-policy/schema.js';
import type { DnsConfig, TlsRequest } from './network-schema.js';
import type { GatedNetwork } from './run-spec.js';
import type { SecretEntry, SecretsConfig } from './secret-schema.js';

export interface NetworkRequest {
  enabled?: boolean;
  policy?: NetworkPolicy | null;
  dns?: Static<typeof DnsConfig> | null;
  tls?: TlsRequest | null;
  secrets?: SecretsConfig | null;
  strict?: boolean;
}

/** The part of a network that needs the gateway. Undefined: nothing does, so the sandbox has the way of the kernel. */
export function gatedNetwork({
  policy,
  dns,
  tls,
  secrets,
  strict = true,
}: NetworkRequest): GatedNetwork | undefined {
  const entries = secrets?.entries ?? [];
  const isIntercepted = tls != null && Object.keys(tls).length > 0 && tls.enabled !== false;
  const hasNames = Object.keys(dns ?? {}).length > 0 || (policy != null && hasDomainRules(policy));
  if (!hasNames && !isIntercepted && entries.length === 0) return undefined;
  return {
    strict,
    dns: {
      nameservers: dns?.nameservers ?? [],
      queryTimeoutMs: dns?.query_timeout_ms ?? 5_000,
      rebindProtection: dns?.rebind_protection ?? true,
    },
    tls: tlsSettings(tls ?? {}, isIntercepted),
    secrets: entries.map((entry) => gatedSecret(entry, secrets ?? {})),
  };
}

function tlsSettings(tls: TlsRequest, enabled: boolean): TlsSettings {
  const scoped = tls.scoped_upstream_ca_cert ?? [];
  return {
    enabled,
    ports: tls.intercepted_ports ?? [443],
    bypass: tls.bypass ?? [],
    verifyUpstream: tls.verify_upstream ?? true,
    scopedVerify: tls.scoped_verify_upstream ?? [],
    authorities: [
      ...(tls.upstream_ca_cert ?? []).map((pem) => ({ pem })),
      ...scoped.map(({ pattern, path }) => ({ pattern, pem: path })),
    ],
    blockQuic: tls.block_quic_on_intercept ?? true,
    cacheCapacity: tls.cache?.capacity ?? 1_000,
    validityHours: tls.cache?.validity_hours ?? 24,
  };
}

type Hosts = NonNullable<SecretEntry['allowed_hosts']>;

/** The secret without its value. `ofAll`: the settings of all secrets, which apply where it has none. */
export function gatedSecret(entry: SecretEntry, ofAll: SecretsConfig): Omit<GatedSecret, 'value'> {
  const action =
    entry.on_violation ?? entry.violation_action ?? ofAll.on_violation ?? ofAll.violation_action ?? undefined;
  const passing = action?.type === 'passthrough' ? action.hosts : [];
  const hosts: Hosts = [...passing, ...(entry.passthrough_hosts ?? ofAll.passthrough_hosts ?? [])];
  return {
    name: entry.env_var,
    placeholder: placeholderOf(entry),
    allowedHosts: entry.allowed_hosts ?? [],
    passthroughHosts: hosts,
    places: placesOf(entry),
    onViolation: action === undefined || action.type === 'passthrough' ? 'block_and_log' : action.type,
    requireTlsIdentity: entry.require_tls_identity ?? true,
  };
}

/** Clients from 0.7 on leave it out when it is this one. */
export function placeholderOf({
  env_var,
  placeholder,
}: Pick<SecretEntry, 'env_var' | 'placeholder'>): string {
  return placeholder ?? `$MSB_${env_var}`;
}

/** Clients from 0.7 on name headers, and count Basic credentials among them. */
function placesOf({ injection = {}, substitution }: SecretEntry): GatedSecret['places'] {
  if (substitution == null) {
    const {
      headers = true,
      basic_auth: basicAuth = true,
      query_params: query = false,
      body = false,
    } = injection;
    return { headers, headerFields: [], basicAuth, query, body };
  }
  const { headers = true, header_fields: fields = [], query = false, body = false } = substitution;
  return { headers, headerFields: fields.map((name) => name.toLowerCase()), basicAuth: headers, query, body };
}
