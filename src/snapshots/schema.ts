import { Type, type Static } from 'typebox';
import { EventActor } from '../audit/events/schema.js';
import { labelsForm } from '../http/labels-form.js';
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
} from '../http/schema.js';
import { NAME_FORM } from '../spec/names.js';
import { SandboxStatus } from '../spec/statuses.js';

const kind = Type.Literal('disk', { description: 'The kind of the snapshot: the disk, without memory.' });

const SnapshotLocation = Named(
  'SnapshotLocation',
  {
    type: Type.Literal('managed', { description: 'The service keeps the snapshot.' }),
    id: Field(Uuid, 'The id of the snapshot.'),
  },
  'The place of a snapshot.',
);

const SnapshotIntegrity = Nullable(
  Named(
    'SnapshotIntegrity',
    {
      algorithm: Type.Literal('sha256', { description: 'The algorithm of the digest.' }),
      digest: Type.String({
        description:
          'The digest of the changes since the start from the image or the parent, as an uncompressed archive.',
      }),
    },
    'The digest of the content of a snapshot.',
  ),
);

const SnapshotManifest = Named(
  'SnapshotManifest',
  {
    schema: Type.Literal(1, { description: 'The version of the descriptor.' }),
    artifact: Type.Literal('snapshot', { description: 'The kind of the descriptor.' }),
    scope: Type.Literal('disk', { description: 'The snapshot has the disk alone.' }),
    created_at: Field(DateTime, 'The time at which the snapshot was requested.'),
    parent: Nullable(
      Type.String({
        description: 'The digest of the snapshot that the sandbox was made from. Null: of an image.',
      }),
    ),
    image: Named(
      'SnapshotImage',
      {
        ref: Type.String({ description: 'The reference of the image below the snapshot.' }),
        manifest_digest: Type.String({
          description: 'The digest of the image below the snapshot. Zeros: the runtime does not tell.',
        }),
      },
      'The image below a snapshot.',
    ),
    source_sandbox: Nullable(
      Type.String({ description: 'The name of the sandbox at the time of the request.' }),
    ),
    state: Named(
      'SnapshotState',
      {
        kind: Type.Literal('file', { description: 'The form of the content: one file.' }),
        format: Words(['raw', 'qcow2'], {
          description:
            'The format of the file. `raw`: it is not packed. `qcow2`: a disk of a virtual machine.',
        }),
        fstype: Type.String({
          description:
            'The content of the file: `oci-layer` for a layer of an image, `ext4` for the file system of a disk.',
        }),
        upper: Named(
          'SnapshotLayer',
          {
            file: Type.String({ description: 'The name of the file.' }),
            size_bytes: Int64({ description: 'The bytes of everything above the image.' }),
            integrity: Field(
              SnapshotIntegrity,
              'The digest of the content. Null: the request did not ask for it.',
            ),
          },
          'The content of a snapshot.',
        ),
      },
      'The form of the content of a snapshot.',
    ),
    labels: StringMap({ description: 'The labels of the snapshot.' }),
    extensions: StringMap({ description: 'There are none.' }),
    requires: Type.Array(Type.String(), { description: 'There are none.' }),
  },
  'The descriptor of a snapshot. Its digest is that of this object in its canonical form.',
);
export type SnapshotManifest = Static<typeof SnapshotManifest>;

export const SnapshotResponse = Named(
  'SnapshotResponse',
  {
    kind,
    id: Field(Uuid, 'An extension: the id of the snapshot.'),
    name: Type.String({ description: 'The name of the snapshot, unique among those that are ready.' }),
    status: Words(['ready', 'deleting'], {
      title: 'SnapshotStatus',
      description:
        'An extension: `deleting` from the request to delete the snapshot until its data is purged.',
    }),
    location: SnapshotLocation,
    sandbox_id: Field(Nullable(Uuid), 'The id of the sandbox that was captured. Null: it was imported.'),
    digest: Type.String({ description: 'The digest of `manifest` in its canonical form.' }),
    size_bytes: Int64({
      description: 'The bytes of everything above the image. Layers that snapshots share count for each.',
    }),
    manifest: SnapshotManifest,
    labels: StringMap({ description: 'The labels of the snapshot.' }),
    created_by: EventActor,
    created_at: Field(DateTime, 'The time at which the snapshot was requested.'),
    purge_at: Field(
      Nullable(DateTime),
      'An extension: the time at which the data of a deleted snapshot is purged. Null: it is not deleted.',
    ),
  },
  'The disk of a sandbox at one moment.',
);
export type SnapshotResponse = Static<typeof SnapshotResponse>;

export const PaginatedSnapshot = PageOf('PaginatedSnapshot', SnapshotResponse);

export const SnapshotError = Nullable(
  Named(
    'SnapshotError',
    {
      code: Type.String({ description: 'The reason as a code.' }),
      message: Type.String({ description: 'The reason for people.' }),
    },
    'Why an operation has failed.',
  ),
);

export const SnapshotOperation = Named(
  'SnapshotOperation',
  {
    id: Field(Uuid, 'The id of the operation, which its snapshot has too.'),
    kind,
    status: Words(['queued', 'in_progress', 'succeeded', 'failed'], {
      title: 'SnapshotOperationStatus',
      description: 'The progress of the operation.',
    }),
    name: Type.String({ description: 'An extension: the name of the snapshot.' }),
    sandbox_id: Field(Nullable(Uuid), 'An extension: the sandbox that is captured. Null: it is an import.'),
    sandbox_name: Nullable(
      Type.String({
        description:
          'An extension: the name of the sandbox at the time of the request. Null: it is an import.',
      }),
    ),
    result: Field(Nullable(SnapshotResponse), 'The snapshot, once the operation has succeeded.'),
    error: Field(SnapshotError, 'Why the operation has failed. Null: it has not.'),
    created_at: Field(DateTime, 'The time of the request.'),
    updated_at: Field(DateTime, 'The time at which the status last changed.'),
    completed_at: Field(Nullable(DateTime), 'The time at which the operation ended. Null: it has not.'),
  },
  'The work of making a snapshot.',
);
export type SnapshotOperation = Static<typeof SnapshotOperation>;

export const PaginatedSnapshotOperation = PageOf('PaginatedSnapshotOperation', SnapshotOperation);

export const PaginatedSnapshotCandidate = PageOf(
  'PaginatedSnapshotCandidate',
  Named(
    'SnapshotCandidate',
    {
      id: Field(Uuid, 'The id of the sandbox.'),
      name: Type.String({ description: 'The name of the sandbox.' }),
      slug: Type.String({ description: 'The slug of the sandbox.' }),
      status: SandboxStatus,
      image: Type.String({ description: 'The image of the sandbox.' }),
      created_at: Field(DateTime, 'The time at which the sandbox was created.'),
    },
    'A sandbox of which a snapshot can be made.',
  ),
);

export const CreateSnapshotRequest = Named(
  'CreateSnapshotRequest',
  {
    kind: Type.Literal('disk', { description: 'The kind of the snapshot. There are only those of disks.' }),
    sandbox_id: Field(Uuid, 'The id of the sandbox to capture, which runs or has run.'),
    name: Type.String({
      ...NAME_FORM,
      description: 'The name of the snapshot: 1 to 128 of A-Z a-z 0-9 . - _, and not in the form of a UUID.',
    }),
    dest_dir: Type.Optional(
      Nullable(
        Type.String({
          description: 'Refused: the service keeps snapshots itself, and writes none to volumes.',
        }),
      ),
    ),
    labels: Type.Optional(
      StringMap({ ...labelsForm(), description: 'The labels of the snapshot. Default: none.' }),
    ),
    force: Type.Optional(
      Type.Boolean({
        default: false,
        description:
          'Whether it replaces a snapshot of the same name, which is deleted when the new one is ready. Default: false.',
      }),
    ),
    record_integrity: Type.Optional(
      Type.Boolean({
        default: false,
        description: 'Whether the descriptor has the digest of the content. Default: false.',
      }),
    ),
  },
  'The snapshot to make.',
  restricting({
    fields: [],
    words: ['ttl', 'expire', 'retention', 'encrypted', 'encryption', 'permission', 'policy', 'memory'],
  }),
);
export type CreateSnapshotRequest = Static<typeof CreateSnapshotRequest>;
