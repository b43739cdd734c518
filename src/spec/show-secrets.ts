import { placeholderOf } from './gated-network.js';
import type { SandboxSecret, SecretEntry, SecretsConfig } from './secret-schema.js';

type Shown = SandboxSecret;
type Host = NonNullable<SecretEntry['allowed_hosts']>[number];

/** The policies of secrets in the form of the contract. The value, its source and its vault path are left out. */
export function showSecrets(secrets: SecretsConfig): Shown[] {
  return (secrets.entries ?? []).map((entry) => showSecret(entry, secrets));
}

function showSecret(entry: SecretEntry, ofAll: SecretsConfig): Shown {
  const onViolation = violationOf(entry, ofAll);
  return {
    env_var: entry.env_var,
    placeholder: placeholderOf(entry),
    allowed_hosts: (entry.allowed_hosts ?? []).map(showHost),
    injection: injectionOf(entry),
    ...(onViolation === undefined ? {} : { on_violation: onViolation }),
    ...(entry.require_tls_identity === false ? { require_tls_identity: false } : {}),
  };
}

/** Clients from 0.7 on name headers, and count Basic credentials among them. */
function injectionOf({ injection = {}, substitution }: SecretEntry): Shown['injection'] {
  if (substitution == null) {
    const { headers = true, basic_auth = true, query_params = false, body = false } = injection;
    return { headers, basic_auth, query_params, body };
  }
  const { headers = true, header_fields: only = [], query = false, body = false } = substitution;
  return {
    headers,
    basic_auth: headers,
    query_params: query,
    body,
    ...(only.length === 0 ? {} : { header_fields: only }),
  };
}

/**
 * The policy of the entry comes before the one of all. Hosts that get the placeholder are an action of 0.6, and beside
 * it in 0.7.
 */
function violationOf(entry: SecretEntry, ofAll: SecretsConfig): Shown['on_violation'] {
  const action =
    entry.on_violation ?? entry.violation_action ?? ofAll.on_violation ?? ofAll.violation_action ?? undefined;
  const hosts = entry.passthrough_hosts ?? ofAll.passthrough_hosts ?? [];
  if (action === undefined && hosts.length === 0) return undefined;
  return {
    type: action?.type ?? 'block_and_log',
    ...(action?.type === 'passthrough' ? { hosts: action.hosts.map(showHost) } : {}),
    ...(hosts.length === 0 ? {} : { passthrough_hosts: hosts.map(showHost) }),
  };
}

function showHost(host: Host) {
  return host.type === 'any' ? { type: host.type } : { type: host.type, value: host.value };
}
