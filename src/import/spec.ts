import { MASKED, withoutSecrets } from '../spec/env-schema.js';
import type { SandboxSpec } from '../spec/schema.js';

export function withEphemeral(spec: SandboxSpec, ephemeral: boolean): SandboxSpec | undefined {
  if ((spec.lifecycle.ephemeral ?? ephemeral) !== ephemeral) return undefined;
  return { ...spec, lifecycle: { ...spec.lifecycle, ephemeral } };
}

/** Masks secret variables. Keeps boolean members of `injection`: another member may contain the value of the secret. */
export function withoutSecretValues(spec: SandboxSpec): SandboxSpec {
  const { network } = spec;
  const env = withoutSecrets(spec.env, MASKED);
  if (!network.secrets) return { ...spec, env };
  const secrets = network.secrets.map((secret) => ({ ...secret, injection: flagsOf(secret.injection) }));
  return { ...spec, env, network: { ...network, secrets } };
}

function flagsOf(injection: Record<string, unknown>): Record<string, boolean> {
  return Object.fromEntries(
    Object.entries(injection).filter((entry): entry is [string, boolean] => typeof entry[1] === 'boolean'),
  );
}
