import { Type, type Static } from 'typebox';
import { labelsForm } from '../../http/labels-form.js';
import {
  DateTime,
  Field,
  Int64,
  Named,
  Nullable,
  PageOf,
  restricting,
  StringMap,
  Uuid,
  Words,
} from '../../http/schema.js';
import { NAME_FORM } from '../../spec/names.js';
import { SandboxStatus } from '../../spec/statuses.js';
import { SnapshotError } from '../schema.js';

/** An operation makes no more. */
export const MOST_COPIES = 100;

const PARTS = ['none', 'inherit'] as const;

export const ForkRequest = Named(
  'ForkRequest',
  {
    count: Type.Integer({
      format: 'int32',
      minimum: 1,
      maximum: MOST_COPIES,
      description: 'The number of copies.',
    }),
    names: Type.Optional(
      Type.Array(Type.String(NAME_FORM), {
        maxItems: MOST_COPIES,
        description: 'The name of each copy, as many as `count`.',
      }),
    ),
    name_prefix: Type.Optional(
      Type.String({
        description:
          'The copies get this text, a hyphen and the first numbers that are free as names. Default: the name of the sandbox.',
      }),
    ),
    labels: Type.Optional(
      StringMap({ ...labelsForm(), description: 'Labels of the copies, beside those of the sandbox.' }),
    ),
    start: Type.Optional(
      Type.Boolean({
        default: true,
        description: 'Whether the copies start once their disk is captured. Default: true.',
      }),
    ),
    volumes: Type.Optional(
      Words(['share', 'copy'], {
        description:
          '`share`: the copies mount the volumes of the sandbox. `copy`: each copy gets named volumes of its own, with the same files. A sandbox with volumes needs it.',
      }),
    ),
    secrets: Type.Optional(
      Words([...PARTS], {
        description:
          '`inherit`: the copies get the secrets and the secret variables of the sandbox. Default: `none`.',
      }),
    ),
    ports: Type.Optional(
      Words([...PARTS], {
        description:
          '`inherit`: the copies publish the same ports of the guest, each on a free port of the host. Default: `none`.',
      }),
    ),
  },
  'The copies to make.',
  restricting({
    fields: [],
    words: ['network', 'policy', 'resource', 'memory', 'cpu', 'env', 'mount', 'ttl', 'lifecycle', 'slug'],
  }),
);
export type ForkRequest = Static<typeof ForkRequest>;

const operation = {
  id: Field(Uuid, 'The id of the operation. The copies have it as `disk_snapshot_id`.'),
  status: Words(['queued', 'in_progress', 'succeeded', 'failed'], {
    title: 'ForkOperationStatus',
    description:
      '`succeeded`: the disk is captured, and the copies start from it. `failed`: there are no copies.',
  }),
  sandbox_id: Field(Uuid, 'The sandbox that is copied.'),
  sandbox_name: Type.String({ description: 'Its name at the time of the request.' }),
  count: Type.Integer({ format: 'int32', description: 'The number of copies that were asked for.' }),
  size_bytes: Nullable(
    Int64({
      description: 'The bytes of everything above the image, which the copies share. Null: not captured.',
    }),
  ),
  error: Field(SnapshotError, 'Why the operation has failed. Null: it has not.'),
  created_at: Field(DateTime, 'The time of the request.'),
  updated_at: Field(DateTime, 'The time at which the status last changed.'),
  completed_at: Field(Nullable(DateTime), 'The time at which the operation ended. Null: it has not.'),
};

const ForkedSandbox = Named(
  'ForkedSandbox',
  {
    id: Field(Uuid, 'The id of the copy.'),
    name: Type.String({ description: 'The name of the copy.' }),
    slug: Type.String({ description: 'The slug of the copy.' }),
    status: SandboxStatus,
  },
  'A copy of a sandbox.',
);
export type ForkedSandbox = Static<typeof ForkedSandbox>;

export const ForkOperation = Named(
  'ForkOperation',
  {
    ...operation,
    sandboxes: Type.Array(ForkedSandbox, {
      description:
        'The copies that exist, in the order of their numbers or names. Deleted ones are left out.',
    }),
  },
  'The work of copying a sandbox.',
);
export type ForkOperation = Static<typeof ForkOperation>;

const ForkSummary = Named('ForkSummary', operation, 'The work of copying a sandbox, without the copies.');
export type ForkSummary = Static<typeof ForkSummary>;
export const PaginatedFork = PageOf('PaginatedFork', ForkSummary);
