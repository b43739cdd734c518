/** The statuses of a snapshot, and the effect of each event in each of them. */
export const SNAPSHOT_STATUSES = ['queued', 'in_progress', 'ready', 'failed', 'deleting'] as const;
export type SnapshotStatus = (typeof SNAPSHOT_STATUSES)[number];

/** `complete` and `fail` are results of captures, `begin` is the service's, and the others are requests of callers. */
type SnapshotEvent = 'begin' | 'complete' | 'fail' | 'delete' | 'restore';

/** `same`: no effect. `missing`: no caller finds it. */
type Outcome = SnapshotStatus | 'same' | 'missing';

export const TRANSITIONS: Record<SnapshotStatus, Record<SnapshotEvent, Outcome>> = {
  // A deletion cancels the operation.
  queued: { begin: 'in_progress', complete: 'same', fail: 'failed', delete: 'failed', restore: 'missing' },
  in_progress: { begin: 'same', complete: 'ready', fail: 'failed', delete: 'failed', restore: 'missing' },
  ready: { begin: 'same', complete: 'same', fail: 'same', delete: 'deleting', restore: 'same' },
  failed: { begin: 'same', complete: 'same', fail: 'same', delete: 'missing', restore: 'missing' },
  deleting: { begin: 'same', complete: 'same', fail: 'same', delete: 'same', restore: 'ready' },
};

/** The words of clients for the operation that makes a snapshot. */
export const OPERATION_STATUS = {
  queued: 'queued',
  in_progress: 'in_progress',
  ready: 'succeeded',
  deleting: 'succeeded',
  failed: 'failed',
} as const satisfies Record<SnapshotStatus, string>;
