import { operator } from '../audit/events/actor.js';
import type { Pool } from '../db/pool.js';
import { createOrg } from '../orgs/create.js';
import { hasOrgs } from '../orgs/queries.js';
import { createKey, type NewKey } from './create.js';

export interface FirstKey extends NewKey {
  org: { id: string; name: string; slug: string };
}

/** Gives a new installation an organization and a key. Undefined when it has organizations. */
export async function createFirstKey(pool: Pool): Promise<FirstKey | undefined> {
  if (await hasOrgs(pool)) return undefined;
  const actor = operator('serve');
  const org = await createOrg(pool, { name: 'Default', slug: 'default' }, actor).catch(
    async (error: unknown) => {
      // Another process of the installation has its first start at the same time.
      if (await hasOrgs(pool)) return undefined;
      throw error;
    },
  );
  if (org === undefined) return undefined;
  return { org, ...(await createKey(pool, org.id, 'first key', actor)) };
}
