/** The statuses of a template, and the effect of each event in each of them. */
export const TEMPLATE_STATUSES = ['queued', 'building', 'succeeded', 'failed', 'cancelled'] as const;
export type TemplateStatus = (typeof TEMPLATE_STATUSES)[number];

/** `begin`, `succeed` and `fail` are of the worker, and `delete` is a request. */
type TemplateEvent = 'begin' | 'succeed' | 'fail' | 'delete';

/** `same`: no effect. `removed`: no caller finds it any more. */
type Outcome = TemplateStatus | 'same' | 'removed';

export const TRANSITIONS: Record<TemplateStatus, Record<TemplateEvent, Outcome>> = {
  queued: { begin: 'building', succeed: 'same', fail: 'failed', delete: 'cancelled' },
  building: { begin: 'same', succeed: 'succeeded', fail: 'failed', delete: 'cancelled' },
  succeeded: { begin: 'same', succeed: 'same', fail: 'same', delete: 'removed' },
  failed: { begin: 'same', succeed: 'same', fail: 'same', delete: 'removed' },
  cancelled: { begin: 'same', succeed: 'same', fail: 'same', delete: 'removed' },
};

export function hasEnded(status: TemplateStatus): boolean {
  return status !== 'queued' && status !== 'building';
}
