import type { FastifyReply, FastifyRequest } from 'fastify';
import type { ErrorName } from '../../http/errors.js';
import { readPath } from '../../volumes/files/path-header.js';
import { sandboxKeyOf, type Address } from '../sessions/address.js';
import { ENTRANCE_REFUSALS, type Entrance, type Visit } from '../sessions/entrance.js';

export const REFUSALS: ErrorName[] = [
  ...ENTRANCE_REFUSALS,
  'invalid_sandbox_path',
  'sandbox_file_forbidden',
  'sandbox_file_not_found',
  'ended_with_sandbox',
];
export const WRITE_REFUSALS: ErrorName[] = ['sandbox_file_exists', 'storage_full', 'idempotency_conflict'];

/** The properties that the routes of one address share. */
export function routeOptions({ params }: Address) {
  return { scope: 'sandboxes:exec', tags: ['sandboxes'], params } as const;
}

export function pathOf(request: Parameters<typeof readPath>[0]): string {
  return readPath(request, 'invalid_sandbox_path');
}

export type Enter = (request: FastifyRequest, reply: FastifyReply) => Promise<Visit>;

export function enterBy(entrance: Entrance): Enter {
  return (request, reply) => entrance.enter(request, reply, sandboxKeyOf(request));
}
