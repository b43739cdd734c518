import { documented } from '../http/schema.js';

/** Later clients send the image in this form. `acceptFlatSource` makes `image` of it before the body is validated. */
export const FLAT_SOURCE = documented({
  required: ['name'],
  dependentRequired: { reference: ['source'] },
  properties: {
    source: {
      type: 'string',
      enum: ['oci', 'disk_snapshot'],
      description: 'With `reference` or `disk_snapshot_ref`, in place of `image`: the kind of the source.',
    },
    reference: {
      type: 'string',
      description: 'With the source `oci`, in place of `image`: the reference of the OCI image.',
    },
    disk_snapshot_ref: {
      type: 'object',
      required: ['type', 'id'],
      properties: {
        type: { type: 'string', enum: ['managed'], description: 'The service keeps the snapshot.' },
        id: { type: 'string', description: 'The id or the name of the snapshot.' },
      },
      description: 'With the source `disk_snapshot`, in place of `image`: the snapshot.',
    },
  },
});
