import type { FastifyRequest } from 'fastify';
import type { Context } from '../context.js';
import { deadBecause, findKey } from '../keys/authenticate.js';

/** For answers that go on: whether the key of the request is still taken. Asks the database. */
export async function isStillTaken(ctx: Context, request: FastifyRequest): Promise<boolean> {
  const secret = /^Bearer +(\S+) *$/i.exec(request.headers.authorization ?? '')?.[1] ?? '';
  const key = await findKey(ctx.pool, secret);
  return key !== undefined && deadBecause(key, ctx.now()) === undefined;
}
