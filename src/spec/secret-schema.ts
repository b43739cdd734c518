/** The secrets of requests, in the form of clients before 0.7 and of those since, and those of answers. */
import { Type, type Static } from 'typebox';
import { AnyObject, Field, Named, Nullable, Variants, Words } from '../http/schema.js';
import { MOST } from './size-limits.js';

const HostPattern = Variants(
  'type',
  [
    Type.Object({
      type: Type.Literal('exact', { description: 'One host.' }),
      value: Type.String({ minLength: 1, description: 'The name of the host.' }),
    }),
    Type.Object({
      type: Type.Literal('wildcard', { description: 'A domain with all its subdomains.' }),
      value: Type.String({ minLength: 1, description: 'The pattern, such as `*.example.com`.' }),
    }),
    Type.Object({ type: Type.Literal('any', { description: 'Every host.' }) }),
  ],
  { title: 'CloudHostPattern', description: 'The hosts that a secret may be sent to.' },
);

const SecretInjection = Named(
  'SecretInjection',
  {
    headers: Type.Optional(
      Type.Boolean({ default: true, description: 'Whether the placeholder is replaced in headers.' }),
    ),
    basic_auth: Type.Optional(
      Type.Boolean({
        default: true,
        description: 'Whether the placeholder is replaced in Basic credentials.',
      }),
    ),
    query_params: Type.Optional(
      Type.Boolean({ default: false, description: 'Whether the placeholder is replaced in the query.' }),
    ),
    body: Type.Optional(
      Type.Boolean({ default: false, description: 'Whether the placeholder is replaced in the body.' }),
    ),
  },
  'The parts of a request in which the secret replaces its placeholder.',
);

const SecretSubstitution = Named(
  'SecretSubstitution',
  {
    headers: Type.Optional(
      Type.Boolean({
        default: true,
        description: 'Whether the placeholder is replaced in headers, also in Basic credentials.',
      }),
    ),
    header_fields: Type.Optional(
      Type.Array(Type.String({ minLength: 1 }), {
        maxItems: MOST.hosts,
        description: 'The only headers in which it is replaced. Empty: every header.',
      }),
    ),
    query: Type.Optional(
      Type.Boolean({ default: false, description: 'Whether the placeholder is replaced in the query.' }),
    ),
    body: Type.Optional(
      Type.Boolean({ default: false, description: 'Whether the placeholder is replaced in the body.' }),
    ),
  },
  'The parts of a request in which the secret replaces its placeholder, as clients from 0.7 on send them.',
);

const passthroughHosts = Type.Optional(
  Nullable(
    Type.Array(HostPattern, {
      maxItems: MOST.hosts,
      description: 'The hosts that get the placeholder unchanged, as clients from 0.7 on send them.',
    }),
  ),
);

const ViolationAction = Variants(
  'type',
  [
    Type.Object({
      type: Words(['block', 'block_and_log', 'block_and_terminate'], {
        description: 'The request is blocked. It can be logged, or end the sandbox.',
      }),
    }),
    Type.Object({
      type: Type.Literal('passthrough', { description: 'The placeholder is sent as it is to these hosts.' }),
      hosts: Type.Array(HostPattern, {
        maxItems: MOST.hosts,
        description: 'The hosts that get the placeholder.',
      }),
    }),
  ],
  {
    title: 'CloudViolationAction',
    description: 'The reaction to a placeholder that is sent to a host that is not allowed.',
  },
);

export const SecretEntry = Named(
  'CloudSecretEntry',
  {
    env_var: Type.String({ description: 'The environment variable that has the placeholder in the guest.' }),
    placeholder: Type.Optional(
      Type.String({
        description: 'The text that stands for the secret in the guest. Default: `$MSB_` and the variable.',
      }),
    ),
    value: Type.Optional(
      Type.String({ description: 'The secret. It is never stored in clear and never returned.' }),
    ),
    source: Type.Optional(
      Field(
        Nullable(
          Variants(
            'type',
            [
              Type.Object({
                type: Type.Literal('env', { description: 'An environment variable of the client.' }),
                var: Type.String({ description: 'The name of the variable.' }),
              }),
              Type.Object({
                type: Type.Literal('store', { description: 'A store of secrets.' }),
                reference: Type.String({ description: 'The place in the store.' }),
              }),
            ],
            { title: 'CloudSecretSource', description: 'The place of a secret.' },
          ),
        ),
        'A place outside the request that has the secret. The service refuses it; send `value`.',
      ),
    ),
    allowed_hosts: Type.Optional(
      Type.Array(HostPattern, {
        maxItems: MOST.hosts,
        description: 'The hosts that the secret may be sent to. At least one.',
      }),
    ),
    injection: Type.Optional(SecretInjection),
    substitution: Type.Optional(
      Field(Nullable(SecretSubstitution), 'In place of `injection`, as clients from 0.7 on send it.'),
    ),
    passthrough_hosts: passthroughHosts,
    violation_action: Type.Optional(
      Field(Nullable(ViolationAction), 'In place of `on_violation`, as clients from 0.7 on send it.'),
    ),
    on_violation: Type.Optional(
      Field(Nullable(ViolationAction), 'The reaction to a violation with this secret. Null: that of all.'),
    ),
    require_tls_identity: Type.Optional(
      Type.Boolean({
        default: true,
        description: 'Whether the secret is sent only to hosts with a verified certificate.',
      }),
    ),
  },
  'A secret that replaces its placeholder on the way out of the guest.',
);

export type SecretEntry = Static<typeof SecretEntry>;

export const SecretsConfig = Named(
  'CloudSecretsConfig',
  {
    entries: Type.Optional(Type.Array(SecretEntry, { maxItems: MOST.secrets, description: 'The secrets.' })),
    on_violation: Type.Optional(
      Field(
        Nullable(ViolationAction),
        'The reaction to a violation with any secret. Default: `block_and_log`.',
      ),
    ),
    passthrough_hosts: passthroughHosts,
    violation_action: Type.Optional(
      Field(Nullable(ViolationAction), 'In place of `on_violation`, as clients from 0.7 on send it.'),
    ),
  },
  'The secrets that are injected into requests of the guest.',
);
export type SecretsConfig = Static<typeof SecretsConfig>;

export const SandboxSecret = Named(
  'SandboxSecretResponse',
  {
    env_var: Type.String({ description: 'The environment variable that has the placeholder in the guest.' }),
    placeholder: Type.String({ description: 'The text that stands for the secret in the guest.' }),
    allowed_hosts: Type.Array(AnyObject(), { description: 'The hosts that the secret may be sent to.' }),
    injection: AnyObject({ description: 'The parts of a request in which the secret is injected.' }),
    on_violation: Type.Optional(AnyObject({ description: 'The reaction to a violation.' })),
    require_tls_identity: Type.Optional(
      Type.Boolean({ description: 'An extension: false if the secret is also sent to unverified hosts.' }),
    ),
  },
  'A secret, without its value and the place where the value is kept.',
);
export type SandboxSecret = Static<typeof SandboxSecret>;
