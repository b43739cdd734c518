import type { Sql } from '../../db/pool.js';
import { readRunTimes, type RunTimes } from '../../runs/queries.js';
import type { LockedSandbox } from '../queries.js';

/** The latest run of a sandbox that is not settled. The transaction has locked the sandbox. */
export async function runUnderWay(
  tx: Sql,
  { status, org_id: orgId, run_id: runId }: LockedSandbox,
): Promise<RunTimes | undefined> {
  if (runId === null || (status !== 'starting' && status !== 'running' && status !== 'stopping'))
    return undefined;
  const [run] = await readRunTimes(tx, [{ orgId, runId }]);
  return run;
}
