import { documented } from '../http/schema.js';

/** Later clients send the image in this form. `acceptFlatSource` makes `image` of it before the body is validated. */
export const FLAT_SOURCE = documented({
  required: ['name'],
  dependentRequired: { source: ['reference'], reference: ['source'] },
  properties: {
    source: {
      type: 'string',
      enum: ['oci'],
      description: 'With `reference`, in place of `image`: the kind of the source.',
    },
    reference: {
      type: 'string',
      description: 'With `source`, in place of `image`: the reference of the OCI image.',
    },
  },
});
