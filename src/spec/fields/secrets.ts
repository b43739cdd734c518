import { refuse } from '../refuse.js';
import type { SecretEntry, SecretsConfig } from '../secret-schema.js';
import { checkEnvKey, checkSecretKey } from './env.js';

export function checkSecrets({ entries = [], ...ofAll }: SecretsConfig): void {
  checkOneAction(ofAll, 'network.secrets');
  for (const [index, entry] of entries.entries()) checkSecret(entry, `network.secrets.entries[${index}]`);
}

/** Clients before and after 0.7 have names of their own for one question, which has one answer. */
function checkOneAction(
  { on_violation, violation_action }: Pick<SecretEntry, 'on_violation' | 'violation_action'>,
  field: string,
): void {
  if (on_violation == null || violation_action == null) return;
  refuse(`${field}.violation_action`, 'on_violation and violation_action exclude each other');
}

function checkSecret(entry: SecretEntry, field: string): void {
  checkOneAction(entry, field);
  if (entry.injection !== undefined && entry.substitution != null)
    refuse(`${field}.substitution`, 'injection and substitution exclude each other');
  if (entry.substitution?.headers === false && (entry.substitution.header_fields ?? []).length > 0)
    refuse(`${field}.substitution.header_fields`, 'header_fields needs headers: true');
  checkEnvKey(entry.env_var, `${field}.env_var`);
  checkSecretKey(entry.env_var, `${field}.env_var`);
  if (
    entry.placeholder === '' ||
    Buffer.byteLength(entry.placeholder) > 1024 ||
    /[\r\n]/.test(entry.placeholder)
  ) {
    refuse(`${field}.placeholder`, 'a placeholder has 1 to 1024 bytes without line breaks');
  }
  if ((entry.allowed_hosts ?? []).length === 0) {
    refuse(`${field}.allowed_hosts`, 'a secret needs at least one host that may receive it');
  }
  if (entry.source != null) {
    refuse(
      `${field}.source`,
      `a secret cannot come from ${entry.source.type === 'env' ? 'an environment variable: the service does not read its own, and yours does not reach it' : 'a secret store: there is none'}`,
    );
  }
  if (!entry.value) refuse(`${field}.value`, 'a secret needs a value');
}
