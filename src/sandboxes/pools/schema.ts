import { Type, type Static } from 'typebox';
import { DateTime, Field, Named, Nullable, PageOf, restricting, Uuid } from '../../http/schema.js';
import { NAME_FORM } from '../../spec/names.js';
import { RESTRICTING_WORDS } from '../../spec/restrictions.js';
import { SandboxSpec, SPECIFICATION } from '../../spec/specification.js';
import { SandboxStatus } from '../../spec/statuses.js';

/** Bounded, because each pass reads the pools that are to be refilled. */
export const MOST_POOLS = 50;
/** A member costs what a running sandbox costs, so a mistyped size has a bound. */
export const MOST_MEMBERS = 100;

const { image, resources, network, pull_policy } = SPECIFICATION.requestProperties;
const answer = SandboxSpec.properties;

const size = Type.Integer({
  minimum: 0,
  maximum: MOST_MEMBERS,
  description:
    'The number of started sandboxes that the pool keeps ready. 0: it keeps none, and gives none away.',
});
const most = Nullable(
  Type.Integer({
    minimum: 0,
    maximum: 2_147_483_647,
    description:
      'The pool adds no sandbox while so many of it run, ready ones and those that it gave away together. Null, default: no limit.',
  }),
);

export const PutPoolRequest = Type.Object(
  { image, resources, network, pull_policy, size, most: Type.Optional(most) },
  {
    title: 'PutPoolRequest',
    description: 'The pool as it is to be. Fields that are left out have their defaults.',
    additionalProperties: false,
    ...restricting({ fields: ['resources', 'network'], words: RESTRICTING_WORDS }),
  },
);
export type PutPoolRequest = Static<typeof PutPoolRequest>;

const fields = {
  id: Field(Uuid, 'The id of the pool.'),
  name: Type.String({ description: 'The name of the pool, unique in the organization.' }),
  image: Type.String({ description: 'The OCI image of its sandboxes.' }),
  pull_policy: pull_policy,
  image_digest: Nullable(
    Type.String({
      description: 'The digest of the image of the ready sandboxes. Null: none has started yet.',
    }),
  ),
  resources: answer.resources,
  network: answer.network,
  size,
  most,
  ready: Type.Integer({ minimum: 0, description: 'The sandboxes that a create can take now.' }),
  starting: Type.Integer({ minimum: 0, description: 'The sandboxes that start for the pool.' }),
  given: Type.Integer({ minimum: 0, description: 'The running sandboxes that the pool gave away.' }),
  last_failure_message: Nullable(
    Type.String({ description: 'Why the pool could not add a sandbox lately. Null: it could.' }),
  ),
  created_at: Field(DateTime, 'The time at which the pool was created.'),
  updated_at: Field(DateTime, 'The time at which the pool last changed.'),
};

export const PoolResponse = Named(
  'PoolResponse',
  fields,
  'Started sandboxes that creates of the organization can take.',
);
export type PoolResponse = Static<typeof PoolResponse>;

export const PoolWithSandboxes = Named(
  'PoolWithSandboxes',
  {
    ...fields,
    sandboxes: Type.Array(
      Named(
        'PoolSandbox',
        {
          id: Field(Uuid, 'The id of the sandbox, which it keeps.'),
          name: Type.String({ description: 'Its name until a create takes it. Usage shows it.' }),
          status: SandboxStatus,
          started_at: Field(Nullable(DateTime), 'The time at which its run began. Its usage begins then.'),
          image_digest: Nullable(Type.String({ description: 'The digest of its image.' })),
        },
        'A sandbox of a pool that no create has taken.',
      ),
      { description: 'The sandboxes that no create has taken, the oldest first.' },
    ),
  },
  'A pool with its sandboxes.',
);
export type PoolWithSandboxes = Static<typeof PoolWithSandboxes>;

export const PaginatedPool = PageOf('PaginatedPoolResponse', PoolResponse);

/** A form for the documents: the operation has an error of its own for a bad name. */
export const PoolName = Type.String({
  ...NAME_FORM,
  description: 'The name of the pool: 1 to 128 of A-Z a-z 0-9 . - _, beginning with a letter or digit.',
});
