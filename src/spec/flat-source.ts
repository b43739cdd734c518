import type { FastifyRequest } from 'fastify';
import { ApiError } from '../http/errors.js';

/** Clients from 0.7 on send the image or the snapshot as `source` beside the other fields. */
export async function acceptFlatSource({ body }: Pick<FastifyRequest, 'body'>): Promise<void> {
  if (typeof body !== 'object' || body === null || 'image' in body) return;
  const found = sourceOf(body as Record<string, unknown>);
  if (!found) return;
  const { image, fields } = found;
  Object.assign(body, { image });
  for (const field of fields) delete (body as Record<string, unknown>)[field];
}

function sourceOf(body: Record<string, unknown>): { image: object; fields: string[] } | undefined {
  const { source, reference, disk_snapshot_ref: snapshot } = body;
  if (source === undefined && snapshot === undefined) return undefined;
  if (source === 'oci' && reference !== undefined) {
    return { image: { type: 'oci', reference }, fields: ['source', 'reference'] };
  }
  if (
    (source === undefined || source === 'disk_snapshot') &&
    typeof snapshot === 'object' &&
    snapshot !== null
  ) {
    const { type, id } = snapshot as { type?: unknown; id?: unknown };
    if (type === 'managed') {
      return { image: { type: 'disk_snapshot', id }, fields: ['source', 'disk_snapshot_ref'] };
    }
    throw new ApiError(
      'invalid_request',
      'disk_snapshot_ref must be {"type":"managed","id":…}: the service keeps snapshots itself, and reads none from volumes',
      { field: 'disk_snapshot_ref' },
    );
  }
  throw new ApiError(
    'invalid_request',
    'the source of a sandbox must be "oci", with its "reference", or "disk_snapshot", with its "disk_snapshot_ref"',
  );
}
