import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { violatedConstraint } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import { newId } from '../lib/uuid.js';
import { insertQuotas } from '../quotas/queries.js';
import { createHostVolume } from '../volumes/host-volume.js';
import { insertOrg } from './queries.js';
import { isOrgSlug, ORG_SLUG_RULE } from './slug.js';

const NAME_LENGTH = 200;

/**
 * Creates an organization, its host volume and its quotas without limits. Throws ExplainedError, which says what to
 * change.
 */
export async function createOrg(
  pool: Pool,
  { name, slug }: { name: string; slug: string },
  actor: EventActor,
): Promise<{ id: string; name: string; slug: string }> {
  if (!isOrgSlug(slug)) throw new ExplainedError(`the slug must be ${ORG_SLUG_RULE}`);
  if (name.trim() === '' || name.length > NAME_LENGTH || name.includes('\0')) {
    throw new ExplainedError(`the name must have 1 to ${NAME_LENGTH} characters`);
  }
  const id = newId();
  const at = now();
  try {
    await inTransaction(pool, async (tx) => {
      await insertOrg(tx, { id, name, slug, created_at: at });
      await insertQuotas(tx, id, at);
      await recordEvent(tx, {
        orgId: id,
        type: 'org_created',
        actor,
        resourceId: null,
        at,
        payload: { name, slug },
      });
      await createHostVolume(tx, id, actor, at);
    });
  } catch (error) {
    if (violatedConstraint(error) !== 'orgs_slug_key') throw error;
    throw new ExplainedError(`there is already an organization with the slug "${slug}"`, { cause: error });
  }
  return { id, name, slug };
}
