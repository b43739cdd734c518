import type { SandboxSpec } from '../sandboxes/spec/schema.js';

export function withEphemeral(spec: SandboxSpec, ephemeral: boolean): SandboxSpec | undefined {
  if ((spec.lifecycle.ephemeral ?? ephemeral) !== ephemeral) return undefined;
  return { ...spec, lifecycle: { ...spec.lifecycle, ephemeral } };
}

/** Keeps boolean members of `injection`: another member may contain the value of the secret. */
export function withoutSecretValues(spec: SandboxSpec): SandboxSpec {
  const { network } = spec;
  if (!network.secrets) return spec;
  const secrets = network.secrets.map((secret) => ({ ...secret, injection: flagsOf(secret.injection) }));
  return { ...spec, network: { ...network, secrets } };
}

function flagsOf(injection: Record<string, unknown>): Record<string, boolean> {
  return Object.fromEntries(
    Object.entries(injection).filter((entry): entry is [string, boolean] => typeof entry[1] === 'boolean'),
  );
}
