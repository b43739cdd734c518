import { isDeepStrictEqual } from 'node:util';
import type { Runtime } from '../../engine/runtime.js';
import { ApiError } from '../../http/errors.js';
import { stringifyExact } from '../../lib/exact-json.js';
import type { Limits } from '../../quotas/limits.js';
import { checkSize } from '../../quotas/size-limits.js';
import type { RunSpec } from '../../spec/run-spec.js';
import { SPECIFICATION, type SandboxSpec } from '../../spec/specification.js';
import { parseSpec } from '../../spec/text.js';
import { withDisk } from '../admission/disk-size.js';
import type { PoolTemplate } from './queries.js';

/** The service reserves the prefix, so no caller can set it. Usage by this label is the time in pools. */
const POOL_LABEL = 'service.pool';

const NO_VOLUMES = { named: new Map<string, string>(), host: undefined };

/** Throws the refusals of a create, and those of what belongs to one sandbox alone. */
export function checkTemplate(name: string, template: PoolTemplate, runtime: Runtime): void {
  SPECIFICATION.check({ name, ...template }, runtime);
  const { network } = template;
  const own = [
    [network?.ports?.length, 'network.ports', 'a port of the host belongs to one sandbox'],
    [network?.secrets?.entries?.length, 'network.secrets', 'a secret belongs to one sandbox'],
  ] as const;
  for (const [count, field, reason] of own) {
    if (count) {
      throw new ApiError('invalid_sandbox_config', `${field}: ${reason}; create it without a pool`, {
        field,
      });
    }
  }
}

/** The specification of the members, under the limits of the organization. */
export function memberSpec(
  { name, request }: { name: string; request: PoolTemplate },
  limits: Limits,
  runtime: Runtime,
): { runSpec: RunSpec; spec: SandboxSpec } {
  const labels = { [POOL_LABEL]: name };
  const resolved = SPECIFICATION.resolve(withDisk({ name, labels, ...request }, limits, runtime), NO_VOLUMES);
  checkSize(limits, resolved.runSpec);
  return resolved;
}

/** A running sandbox can take these over from a create, or the service does the work itself. */
const APPLIED: ReadonlySet<keyof RunSpec> = new Set([
  'env',
  'labels',
  'shell',
  'idleTimeoutSecs',
  'maxDurationSecs',
  'wakeOnRequest',
  'demands',
]);

/** The fields of a request, by those of the specification for an engine. */
const FIELDS: Partial<Record<keyof RunSpec, string>> = {
  image: 'image.reference',
  registryAccess: 'registry',
  pullPolicy: 'pull_policy',
  vcpus: 'resources.vcpus',
  memoryMib: 'resources.memory_mib',
  diskMib: 'resources.disk_size_mib',
  cmd: 'runtime.cmd',
  entrypoint: 'runtime.entrypoint',
  user: 'runtime.user',
  workdir: 'runtime.workdir',
  scripts: 'runtime.scripts',
  hostname: 'runtime.hostname',
  securityProfile: 'security_profile',
  endsWithCommand: 'lifecycle.ends_with_command',
};

/** The fields of a create that a member cannot take over. Empty: it can be given to the create. */
export function differences(wanted: RunSpec, member: RunSpec): string[] {
  const [a, b] = [storedForm(wanted), storedForm(member)];
  const fields = new Set<string>();
  for (const key of new Set([...Object.keys(a), ...Object.keys(b)]) as Set<keyof RunSpec>) {
    if (APPLIED.has(key) || isDeepStrictEqual(a[key] ?? null, b[key] ?? null)) continue;
    if (key === 'pullPolicy' && wanted.pullPolicy !== 'always') continue;
    // Without a command it has no effect.
    if (key === 'entrypoint' && (wanted.cmd ?? []).length === 0) continue;
    fields.add(FIELDS[key] ?? (/^(network|gated|ports|trust)/.test(key) ? 'network' : key));
  }
  // The values of secret variables are sealed for one sandbox, and given to its engine at the start.
  if (wanted.env.some(({ secret }) => secret === true)) fields.add('env');
  return [...fields].toSorted();
}

export function isSameSpec(made: RunSpec, stored: RunSpec): boolean {
  return isDeepStrictEqual(storedForm(made), storedForm(stored));
}

/** A stored specification has no undefined fields. */
function storedForm(spec: RunSpec): RunSpec {
  return parseSpec(stringifyExact(spec)) as RunSpec;
}
