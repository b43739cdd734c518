import type { FastifyRequest } from 'fastify';
import { ApiError } from '../http/errors.js';

/** Clients from 0.7 on send the image as `source` and `reference` beside the other fields. */
export async function acceptFlatSource({ body }: Pick<FastifyRequest, 'body'>): Promise<void> {
  if (typeof body !== 'object' || body === null || 'image' in body || !('source' in body)) return;
  if (body.source !== 'oci' || !('reference' in body)) {
    throw new ApiError('invalid_request', 'the source of a sandbox must be "oci", with its "reference"');
  }
  Object.assign(body, { image: { type: 'oci', reference: body.reference } });
  delete body.source;
  delete body.reference;
}
