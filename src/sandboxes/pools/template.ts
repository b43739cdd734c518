import { isDeepStrictEqual } from 'node:util';
import { scriptTexts } from '../../engine/run-files.js';
import type { LatePart, Runtime } from '../../engine/runtime.js';
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
  if (template.image.type !== 'oci') {
    throw new ApiError(
      'invalid_sandbox_config',
      'image.type: the sandboxes of a pool start from an OCI image',
      {
        field: 'image.type',
      },
    );
  }
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

/** Process 1 of a member takes these from a create, where the runtime can hand them over. */
const LATE: ReadonlyMap<keyof RunSpec, LatePart> = new Map([
  ['cmd', 'command'],
  ['entrypoint', 'command'],
  ['endsWithCommand', 'command'],
  ['scripts', 'scripts'],
  ['workdir', 'workdir'],
]);
/** A shell of the caller is in the first line of each script. */
const LONGEST_SCRIPTS = 128 * 1024;

/** A running sandbox can take these over from a create, or the service does the work itself. */
const APPLIED: ReadonlySet<keyof RunSpec> = new Set([
  'env',
  'labels',
  'shell',
  'idleTimeoutSecs',
  'maxDurationSecs',
  'wakeOnRequest',
  'pausesWhenIdle',
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

/**
 * How a create differs from a member. `fields`: those that no member can take over. `late`: those that a member may be
 * able to take over, with the part that it then has to take. Both empty: any member can be given to the create.
 */
export interface Difference {
  fields: string[];
  late: { field: string; part: LatePart }[];
}

export function differenceOf(wanted: RunSpec, member: RunSpec): Difference {
  const [a, b] = [storedForm(wanted), storedForm(member)];
  const fields = new Set<string>();
  const late: Difference['late'] = [];
  for (const key of new Set([...Object.keys(a), ...Object.keys(b)]) as Set<keyof RunSpec>) {
    if (APPLIED.has(key) || isDeepStrictEqual(a[key] ?? null, b[key] ?? null)) continue;
    if (key === 'pullPolicy' && wanted.pullPolicy !== 'always') continue;
    // Without a command it has no effect.
    if (key === 'entrypoint' && (wanted.cmd ?? []).length === 0) continue;
    const field = FIELDS[key] ?? (/^(network|gated|ports|trust)/.test(key) ? 'network' : key);
    const part = LATE.get(key);
    if (part && !(key === 'scripts' && isTooLong(wanted))) late.push({ field, part });
    else fields.add(field);
  }
  // The values of secret variables are sealed for one sandbox, and given to its engine at the start.
  if (wanted.env.some(({ secret }) => secret === true)) fields.add('env');
  return { fields: [...fields].toSorted(), late };
}

function isTooLong(spec: RunSpec): boolean {
  return scriptTexts(spec).reduce((sum, [, text]) => sum + Buffer.byteLength(text), 0) > LONGEST_SCRIPTS;
}

export function isSameSpec(made: RunSpec, stored: RunSpec): boolean {
  return isDeepStrictEqual(storedForm(made), storedForm(stored));
}

/** A stored specification has no undefined fields. */
function storedForm(spec: RunSpec): RunSpec {
  return parseSpec(stringifyExact(spec)) as RunSpec;
}
