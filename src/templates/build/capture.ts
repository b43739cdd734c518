import { newId } from '../../lib/uuid.js';
import { createSnapshot } from '../../snapshots/create.js';
import { getOutcome } from '../../snapshots/work-queries.js';
import { callerOfBuild, type BuildEnvironment } from './environment.js';
import { BuildError } from './failure.js';
import { untilChanged } from '../until-changed.js';

/** Makes a snapshot of the sandbox that no caller finds. Returns its id. */
export async function captureBuild(
  { ctx, row, signal }: BuildEnvironment,
  sandboxId: string,
): Promise<string> {
  const request = {
    kind: 'disk' as const,
    sandbox_id: sandboxId,
    name: `template-${newId()}`,
    labels: row.labels,
  };
  const { id } = await createSnapshot(ctx, callerOfBuild(row), request, row.id);
  return untilChanged(ctx, { id: row.id, channel: 'template', signal }, async () => {
    const found = await getOutcome(ctx.pool, { org_id: row.org_id, id });
    if (found?.status === 'ready') return id;
    if (found?.status === 'queued' || found?.status === 'in_progress') return undefined;
    throw new BuildError(
      found?.error_code ?? 'cancelled',
      `the disk of the build cannot be captured: ${found?.error_message ?? 'its snapshot was deleted'}`,
    );
  });
}
