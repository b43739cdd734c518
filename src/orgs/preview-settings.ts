import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { now } from '../lib/instant.js';
import { setPreviewSettings, type PreviewSettings } from './queries.js';

/** Changes the settings of the previews of an organization. Public previews end when they are no longer allowed. */
export async function changePreviewSettings(
  pool: Pool,
  orgId: string,
  settings: Partial<PreviewSettings>,
  actor: EventActor,
): Promise<{ before: PreviewSettings; after: PreviewSettings }> {
  return inTransaction(pool, async (tx) => {
    const before = await setPreviewSettings(tx, orgId, settings);
    const after = { public: settings.public ?? before.public, notice: settings.notice ?? before.notice };
    if (after.public !== before.public || after.notice !== before.notice) {
      const type = 'preview_settings_changed';
      await recordEvent(tx, { orgId, type, actor, resourceId: null, at: now(), payload: { before, after } });
    }
    return { before, after };
  });
}
