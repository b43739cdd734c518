import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { callerOf } from '../../access/caller.js';
import type { ErrorName } from '../../http/errors.js';
import { Field, Uuid } from '../../http/schema.js';
import type { VolumeTarget } from './target.js';

export const BASE = '/v1/volumes/:id/files';
export const tags = ['volumes'];
export const params = Type.Object({ id: Field(Uuid, 'The id of the volume.') });

export const REFUSALS: ErrorName[] = [
  'invalid_volume_path',
  'volume_file_forbidden',
  'volume_not_found',
  'volume_file_not_found',
  'not_supported',
];
export const WRITE_REFUSALS: ErrorName[] = ['volume_deleting', 'volume_file_exists', 'storage_full'];

export function targetOf(request: FastifyRequest): VolumeTarget {
  return { orgId: callerOf(request).orgId, volumeId: (request.params as { id: string }).id };
}
