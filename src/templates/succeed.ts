import { RECONCILER } from '../audit/events/actor.js';
import { recordEvent } from '../audit/events/record.js';
import { announceTemplate } from '../db/changes.js';
import { lockQuotas } from '../quotas/queries.js';
import { lockReady } from '../snapshots/work-queries.js';
import { BuildError } from './build/failure.js';
import { inBuild, type BuildEnvironment } from './build/environment.js';
import type { Built } from './build/run-build.js';
import { deleteContext } from './context/queries.js';
import { findNamed, updateTemplate } from './queries.js';
import { refuseTakenTag } from './taken-tag.js';

/** Ends a build with its template, which takes the name and the tag from the one that has them. */
export async function succeedBuild(
  env: BuildEnvironment,
  { snapshotId, config, image }: Built,
): Promise<void> {
  const { ctx } = env;
  await inBuild(env, async (tx, row) => {
    const { org_id: orgId, id, name, tag, steps, key_labels: labels } = row;
    const snapshot = await lockReady(tx, { org_id: orgId, id: snapshotId });
    if (!snapshot) throw new BuildError('cancelled', 'the disk of the build was deleted: repeat the request');
    // Serializes the builds of one tag.
    await lockQuotas(tx, orgId, 'exclusive');
    const at = ctx.now();
    // Another build may have made it since the request.
    await refuseTakenTag(tx, { orgId, labels }, name, tag);
    const replaced = await findNamed(tx, { orgId, labels }, name, tag);
    if (replaced) await updateTemplate(tx, replaced, { removed_at: at }, at);
    const made = {
      snapshot_id: snapshotId,
      config,
      image_config: image,
      steps_done: steps,
      completed_at: at,
    };
    await updateTemplate(tx, row, { status: 'succeeded', ...made }, at);
    await deleteContext(tx, { orgId, templateId: id });
    await recordEvent(tx, {
      orgId,
      type: 'template_built',
      actor: RECONCILER,
      resourceId: id,
      at,
      payload: {
        template_id: id,
        name,
        tag,
        snapshot_id: snapshotId,
        steps,
        steps_cached: row.steps_cached,
        size_bytes: snapshot.size_bytes,
        replaced_template_id: replaced?.id ?? null,
      },
    });
    await announceTemplate(tx, id);
  });
}
