import type { Holding } from '../../engine/runtime.js';
import type { ReconcileRow } from './queries.js';
import type { RoomNotice } from './record-queries.js';

/** The words that were last shown about each start that waits for room in the engine: a pass writes changes only. */
export class RoomNotices {
  private readonly shown = new Map<string, string>();

  /** The notices that differ from the shown words. */
  changed(notices: readonly RoomNotice[]): RoomNotice[] {
    return notices.filter(({ runId, noRoom }) => (this.shown.get(runId) ?? null) !== noRoom);
  }

  written(notices: readonly RoomNotice[]): void {
    for (const { runId, noRoom } of notices) {
      if (noRoom === null) this.shown.delete(runId);
      else this.shown.set(runId, noRoom);
    }
  }

  forget(isOver: (runId: string) => boolean): void {
    for (const runId of this.shown.keys()) if (isOver(runId)) this.shown.delete(runId);
  }
}

/**
 * The starts of these rows that have not begun to run. The engine reports of an `accepted` one whether it has room
 * now. It holds nothing of a `refused` one, about which the refusal stays shown until the retry is answered.
 */
export function waitingStarts(
  rows: readonly ReconcileRow[],
  holdings: ReadonlyMap<string, Holding>,
): { accepted: RoomNotice[]; refused: string[] } {
  const accepted: RoomNotice[] = [];
  const refused: string[] = [];
  for (const { orgId, sandboxId, wanted } of rows) {
    if (wanted.status !== 'starting' || wanted.runId === null) continue;
    const held = holdings.get(sandboxId);
    if (held === undefined) refused.push(wanted.runId);
    else if (held.state === 'starting' && held.runId === wanted.runId) {
      accepted.push({ orgId, sandboxId, runId: held.runId, noRoom: held.noRoom ?? null });
    }
  }
  return { accepted, refused };
}
