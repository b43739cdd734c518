import type { SandboxSpec } from '../sandboxes/spec/schema.js';

/** The specification of a sandbox with `lifecycle.ephemeral` filled in; undefined when it differs from the sandbox's own word. */
export function withEphemeral(spec: SandboxSpec, ephemeral: boolean): SandboxSpec | undefined {
  if ((spec.lifecycle.ephemeral ?? ephemeral) !== ephemeral) return undefined;
  return { ...spec, lifecycle: { ...spec.lifecycle, ephemeral } };
}

/**
 * The specification with only the flags of each secret's `injection`. They say where a value may go; a member of another type may
 * be the value itself.
 */
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
