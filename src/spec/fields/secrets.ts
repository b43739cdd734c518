import { canonicalName } from '../../network-policy/domains.js';
import { refuse } from '../refuse.js';
import type { SecretEntry, SecretsConfig } from '../secret-schema.js';
import { placeholderOf } from '../gated-network.js';
import { checkEnvKey, checkSecretKey } from './env.js';

/** `path`: of the configuration in the request. */
export function checkSecrets({ entries = [], ...ofAll }: SecretsConfig, path: string): void {
  checkViolations(ofAll, path);
  const placeholders = new Map<string, number>();
  const variables = new Map<string, number>();
  for (const [index, entry] of entries.entries()) {
    const field = `${path}.entries[${index}]`;
    checkSecret(entry, field);
    // Two secrets behind one text would leave the choice to their order.
    checkUnique(placeholders, placeholderOf(entry), index, `${field}.placeholder`);
    checkUnique(variables, entry.env_var, index, `${field}.env_var`);
  }
}

function checkUnique(seen: Map<string, number>, text: string, index: number, field: string): void {
  const first = seen.get(text);
  if (first !== undefined)
    refuse(field, `entries[${first}] has the same one: each secret needs one of its own`);
  seen.set(text, index);
}

function checkHost(host: NonNullable<SecretEntry['allowed_hosts']>[number], field: string): void {
  if (host.type === 'any') return;
  const name = host.type === 'wildcard' ? host.value.replace(/^\*\./, '') : host.value;
  if (canonicalName(name) !== undefined) return;
  refuse(`${field}.value`, 'a host is a domain, such as api.example.com, or for a wildcard *.example.com');
}

function checkHosts(hosts: SecretEntry['allowed_hosts'] | null, field: string): void {
  for (const [index, host] of (hosts ?? []).entries()) checkHost(host, `${field}[${index}]`);
}

/** Clients before and after 0.7 have names of their own for one question, which has one answer. */
function checkViolations(
  {
    on_violation,
    violation_action,
    passthrough_hosts,
  }: Pick<SecretEntry, 'on_violation' | 'violation_action' | 'passthrough_hosts'>,
  field: string,
): void {
  if (on_violation != null && violation_action != null)
    refuse(`${field}.violation_action`, 'on_violation and violation_action exclude each other');
  for (const [name, action] of Object.entries({ on_violation, violation_action }))
    if (action?.type === 'passthrough') checkHosts(action.hosts, `${field}.${name}.hosts`);
  checkHosts(passthrough_hosts, `${field}.passthrough_hosts`);
}

function checkSecret(entry: SecretEntry, field: string): void {
  checkViolations(entry, field);
  if (entry.injection !== undefined && entry.substitution != null)
    refuse(`${field}.substitution`, 'injection and substitution exclude each other');
  if (entry.substitution?.headers === false && (entry.substitution.header_fields ?? []).length > 0)
    refuse(`${field}.substitution.header_fields`, 'header_fields needs headers: true');
  checkEnvKey(entry.env_var, `${field}.env_var`);
  checkSecretKey(entry.env_var, `${field}.env_var`);
  const placeholder = placeholderOf(entry);
  if (placeholder === '' || Buffer.byteLength(placeholder) > 1024 || /[\r\n\0]/.test(placeholder)) {
    refuse(`${field}.placeholder`, 'a placeholder has 1 to 1024 bytes without line breaks');
  }
  if ((entry.allowed_hosts ?? []).length === 0) {
    refuse(`${field}.allowed_hosts`, 'a secret needs at least one host that may receive it');
  }
  checkHosts(entry.allowed_hosts, `${field}.allowed_hosts`);
  if (entry.source != null) {
    refuse(
      `${field}.source`,
      `a secret cannot come from ${entry.source.type === 'env' ? 'an environment variable: the service does not read its own, and yours does not reach it' : 'a secret store: there is none'}`,
    );
  }
  if (!entry.value) refuse(`${field}.value`, 'a secret needs a value');
}
