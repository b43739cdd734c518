import type { SandboxSpec } from '../sandboxes/schema.js';

/** The specification of a sandbox with `lifecycle.ephemeral` filled in; undefined when it differs from the sandbox's own word. */
export function withEphemeral(spec: SandboxSpec, ephemeral: boolean): SandboxSpec | undefined {
  if ((spec.lifecycle.ephemeral ?? ephemeral) !== ephemeral) return undefined;
  return { ...spec, lifecycle: { ...spec.lifecycle, ephemeral } };
}
