import type { FastifyRequest } from 'fastify';
import { callerOf } from '../../access/caller.js';
import { contextOf } from '../../access/request-context.js';
import type { Sql } from '../../db/pool.js';
import { isOfSdk } from '../../http/official-sdk.js';

/**
 * The values that a client puts into a command whose caller named none. Null: it sends null, as the protocol allows.
 */
export interface ClientDefaults {
  cwd: string | null;
  user: string | null;
}

const NONE: ClientDefaults = { cwd: null, user: null };

/**
 * The official SDKs fill in the working directory and the user of the specification, and `/` when it names no
 * directory. The service takes these for "none named", so that the values of the image apply, and a user who cannot
 * change users can run commands.
 */
export async function clientDefaultsOf(request: FastifyRequest, sandboxId: string): Promise<ClientDefaults> {
  if (!isOfSdk(request)) return NONE;
  return readOwn(contextOf(request).pool, callerOf(request).orgId, sandboxId);
}

async function readOwn(sql: Sql, orgId: string, id: string): Promise<ClientDefaults> {
  const { rows } = await sql.query<ClientDefaults & Record<string, unknown>>(
    `select coalesce(s.run_spec->>'workdir', '/') as cwd, s.run_spec->>'user' as user
     from sandboxes s where s.org_id = $1 and s.id = $2`,
    [orgId, id],
  );
  return rows[0] ?? NONE;
}
