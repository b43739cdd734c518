import { isDeepStrictEqual } from 'node:util';
import type { GatedSecret } from '../../gateway/protocol.js';
import { checkSecrets } from '../../spec/fields/secrets.js';
import { gatedNetwork, gatedSecret } from '../../spec/gated-network.js';
import type { GatedNetwork } from '../../spec/run-spec.js';
import type { SecretEntry } from '../../spec/secret-schema.js';
import type { ApplyRequest, ModificationPlan, PlannedChange, PlanRequest } from './schema.js';

type Secret = Omit<GatedSecret, 'value'>;
type Change = NonNullable<ApplyRequest['secrets']>[number];

/** A change of either request. `isNew`: it has a value. */
export interface Modification {
  policy: NonNullable<PlanRequest['policy']>;
  changes: (Omit<Change, 'value'> & { hasValue: boolean })[];
  remove: string[];
}

export function fromPlan({
  policy = 'no_restart',
  secrets = [],
  secrets_remove = [],
}: PlanRequest): Modification {
  const changes = secrets.map(({ material, ...change }) => ({
    ...change,
    hasValue: material.type === 'provided',
  }));
  return { policy, changes, remove: secrets_remove };
}

export function fromApply({
  policy = 'no_restart',
  secrets = [],
  secrets_remove = [],
}: ApplyRequest): Modification {
  const changes = secrets.map(({ value, ...change }) => ({ ...change, hasValue: value !== undefined }));
  return { policy, changes, remove: secrets_remove };
}

export interface Planned {
  plan: Pick<ModificationPlan, 'policy' | 'changes' | 'conflicts'>;
  /** The network of the sandbox after the change. */
  gated: GatedNetwork;
}

/** Compares the wanted secrets with those of the sandbox. Throws the refusals of a create. */
export function planModification(
  { policy, changes, remove }: Modification,
  current: GatedNetwork | undefined,
  runs: boolean,
): Planned {
  const secrets = new Map((current?.secrets ?? []).map((secret) => [secret.name, secret]));
  const planned: { at: string; change: PlannedChange }[] = [];
  const conflicts: ModificationPlan['conflicts'] = [];
  const note = (
    at: string,
    change: PlannedChange['change'],
    { before, after }: { before?: Secret | undefined; after?: Secret },
  ): void => {
    // The variables of commands are those of the start, so the guest does not know the placeholder before the next one.
    const isForStart = change === 'added' || change === 'placeholder_updated';
    const disposition = !runs ? 'next_start' : isForStart ? 'requires_restart' : 'live';
    const { name, allowedHosts } = (after ?? before)!;
    const allow_hosts = allowedHosts.map(({ value = '*' }) => value);
    const wanted: PlannedChange = {
      kind: 'secret',
      field: 'secret',
      name,
      change,
      ...(before && { before_ref: before.placeholder }),
      ...(after && { after_ref: after.placeholder }),
      disposition,
      allow_hosts,
    };
    planned.push({ at, change: wanted });
  };

  for (const [index, name] of remove.entries()) {
    const field = `secrets_remove[${index}]`;
    const secret = secrets.get(name);
    if (!secret) conflicts.push({ field, message: `the sandbox has no secret ${name}` });
    else note(field, 'removed', { before: secret });
    secrets.delete(name);
  }
  for (const [index, change] of changes.entries()) {
    const field = `secrets[${index}]`;
    const before = secrets.get(change.name);
    if (!before && !change.hasValue) {
      conflicts.push({ field, message: `the sandbox has no secret ${change.name}: a new one needs a value` });
      continue;
    }
    const after = gatedSecret(entryOf(change, before), {});
    secrets.set(change.name, after);
    if (!before) note(field, 'added', { after });
    else if (before.placeholder !== after.placeholder) note(field, 'placeholder_updated', { before, after });
    else if (!isDeepStrictEqual(before, after)) note(field, 'hosts_updated', { before, after });
    if (before && change.hasValue) note(field, 'rotated', { before, after });
  }
  checkSecrets(
    {
      entries: [...secrets.values()].map((secret) => ({
        ...entryOf({ name: secret.name }, secret),
        value: '*',
      })),
    },
    'network.secrets',
  );
  conflicts.push(...waitsOf(policy, planned));
  const base = current ?? gatedNetwork({ dns: { rebind_protection: true } })!;
  return {
    plan: { policy, changes: planned.map((one) => one.change), conflicts },
    gated: { ...base, secrets: [...secrets.values()] },
  };
}

/** A change that takes effect in parts would leave the caller without one answer, so it is refused as a whole. */
function waitsOf(
  policy: Modification['policy'],
  planned: readonly { at: string; change: PlannedChange }[],
): ModificationPlan['conflicts'] {
  const message =
    policy === 'no_restart'
      ? 'the guest gets the placeholder at a start: stop the sandbox, change it, and start it again'
      : 'the sandbox runs: stop it, change it, and start it again';
  return planned
    .filter(
      ({ change: { disposition } }) =>
        disposition === 'requires_restart' || (policy === 'next_start' && disposition === 'live'),
    )
    .map(({ at: field }) => ({ field, message }));
}

/** The secret as a create would have it. */
export function entryOf({ name, ...change }: Omit<Change, 'value'>, before: Secret | undefined): SecretEntry {
  const {
    headers = true,
    headerFields = [],
    basicAuth = true,
    query = false,
    body = false,
  } = before?.places ?? {};
  // The older form alone tells Basic credentials from other headers.
  const places =
    headerFields.length > 0
      ? { substitution: { headers, header_fields: headerFields, query, body } }
      : { injection: { headers, basic_auth: basicAuth, query_params: query, body } };
  return {
    env_var: name,
    placeholder: change.placeholder ?? before?.placeholder,
    allowed_hosts: change.allowed_hosts ?? (before?.allowedHosts as SecretEntry['allowed_hosts']) ?? [],
    passthrough_hosts:
      change.passthrough_hosts ?? (before?.passthroughHosts as SecretEntry['passthrough_hosts']) ?? [],
    violation_action: change.violation_action ?? { type: before?.onViolation ?? 'block_and_log' },
    require_tls_identity: change.require_tls_identity ?? before?.requireTlsIdentity ?? true,
    ...(change.substitution == null ? places : { substitution: change.substitution }),
  } as SecretEntry;
}
