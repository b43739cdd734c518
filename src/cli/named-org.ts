import type { Pool } from '../db/pool.js';
import { ExplainedError } from '../lib/explained-error.js';
import { findOrgBySlug } from '../orgs/queries.js';

/** The id of the organization with this slug. Throws ExplainedError when there is none. */
export async function namedOrg(pool: Pool, slug: string): Promise<string> {
  const org = await findOrgBySlug(pool, slug);
  if (!org)
    throw new ExplainedError(`there is no organization with the slug "${slug}": see "sandkeep org list"`);
  return org.id;
}
