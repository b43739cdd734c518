import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { Field, Uuid } from '../../http/schema.js';
import type { SandboxKey } from '../queries.js';

/** A way to name a sandbox in a path. The operation ids of the second one end with `suffix`. */
export interface Address {
  base: string;
  suffix: string;
  params: ReturnType<typeof Type.Object>;
}

export const ADDRESSES: readonly Address[] = [
  {
    base: '/v1/sandboxes/:sandbox_id',
    suffix: '',
    params: Type.Object({ sandbox_id: Field(Uuid, 'The id of the sandbox.') }),
  },
  {
    base: '/v1/sandboxes/by-name/:name',
    suffix: '_by_name',
    params: Type.Object({ name: Type.String({ description: 'The name of the sandbox.' }) }),
  },
];

export function sandboxKeyOf({ params }: FastifyRequest): SandboxKey {
  const { sandbox_id: id, name } = params as { sandbox_id?: string; name: string };
  return id === undefined ? { name } : { id };
}
