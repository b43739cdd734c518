/** Changes of secrets, in the form of the clients of release 0.7. */
import { Type, type Static } from 'typebox';
import { Field, Named, restricting, Variants, Words } from '../../http/schema.js';
import { RESTRICTING_WORDS } from '../../spec/restrictions.js';
import { SecretEntry } from '../../spec/secret-schema.js';
import { MOST } from '../../spec/size-limits.js';

const {
  placeholder,
  allowed_hosts,
  substitution,
  passthrough_hosts,
  violation_action,
  require_tls_identity,
} = SecretEntry.properties;

const name = Type.String({ description: 'The variable of the secret.' });
/** Fields that are left out stay as they are; a new secret gets the defaults of a create. */
const settings = {
  placeholder,
  allowed_hosts,
  substitution,
  passthrough_hosts,
  violation_action,
  require_tls_identity,
};

const Policy = Words(['no_restart', 'next_start', 'restart'], {
  title: 'ModificationPolicy',
  description:
    'Whether a change may wait. `no_restart`: all of it takes effect now, or nothing is changed. `next_start`: for a sandbox that does not run. `restart` is refused.',
});

function changes<T extends Parameters<typeof Named>[1]>(
  title: string,
  entry: string,
  more: T,
  description: string,
) {
  return Named(
    title,
    {
      policy: Type.Optional(Field(Policy, 'Default: `no_restart`.')),
      secrets: Type.Optional(
        Type.Array(Named(entry, { name, ...more, ...settings }, 'The wanted state of a secret.'), {
          maxItems: MOST.secrets,
          description: 'The secrets to add or to change.',
        }),
      ),
      secrets_remove: Type.Optional(
        Type.Array(Type.String({ description: 'The variable of a secret.' }), {
          maxItems: MOST.secrets,
          description: 'The variables of the secrets to remove.',
        }),
      ),
    },
    description,
    // An ignored restriction of a secret would be a leak.
    restricting({ fields: ['secrets'], words: RESTRICTING_WORDS }),
  );
}

const Material = Variants(
  'type',
  [
    Type.Object({ type: Type.Literal('provided', { description: 'The change has a new value.' }) }),
    Type.Object({ type: Type.Literal('absent', { description: 'The value stays.' }) }),
  ],
  { title: 'SecretMaterial', description: 'Whether the change has a new value, which a plan does not have.' },
);

export const PlanRequest = changes(
  'SandboxModificationPlanRequest',
  'SecretPlanEntry',
  { material: Material },
  'A change of the secrets of a sandbox, without values.',
);

export const ApplyRequest = changes(
  'SandboxModificationApplyRequest',
  'SecretApplyEntry',
  {
    value: Type.Optional(
      Type.String({
        minLength: 1,
        description: 'The new value. It is never stored in clear and never returned.',
      }),
    ),
  },
  'A change of the secrets of a sandbox.',
);
export type ApplyRequest = Static<typeof ApplyRequest>;
export type PlanRequest = Static<typeof PlanRequest>;

const PlannedChange = Named(
  'SecretPlannedChange',
  {
    kind: Type.Literal('secret', { description: 'Only secrets can be changed.' }),
    field: Type.Literal('secret', { description: 'Always `secret`.' }),
    name: Type.String({ description: 'The variable of the secret.' }),
    change: Words(['added', 'rotated', 'removed', 'hosts_updated', 'placeholder_updated'], {
      description: 'The kind of the change. `hosts_updated`: the hosts or another rule of the secret.',
    }),
    before_ref: Type.Optional(Type.String({ description: 'The previous placeholder.' })),
    after_ref: Type.Optional(Type.String({ description: 'The placeholder after the change.' })),
    disposition: Words(['live', 'next_start', 'requires_restart'], {
      description: 'The time at which it takes effect.',
    }),
    allow_hosts: Type.Array(Type.String(), { description: 'The hosts that may receive the secret.' }),
  },
  'A planned change of a secret.',
);
export type PlannedChange = Static<typeof PlannedChange>;

const Remark = Named(
  'ModificationRemark',
  {
    field: Type.String({ description: 'The field of the request.' }),
    message: Type.String({ description: 'For people.' }),
  },
  'A remark about a change.',
);

export const ModificationPlan = Named(
  'SandboxModificationPlan',
  {
    sandbox: Type.String({ description: 'The name of the sandbox.' }),
    status: Type.String({ description: 'The status of the sandbox.' }),
    applied: Type.Boolean({ description: 'Whether the change was made.' }),
    policy: Policy,
    changes: Type.Array(PlannedChange, { description: 'The changes.' }),
    conflicts: Type.Array(Remark, { description: 'The reasons why the change is refused.' }),
    warnings: Type.Array(Remark, { description: 'Remarks for people.' }),
  },
  'The effect of a change of the secrets of a sandbox.',
);
export type ModificationPlan = Static<typeof ModificationPlan>;
