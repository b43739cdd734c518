import { Type } from 'typebox';
import { DateTime, Nullable, Uuid, Words } from '../../http/schema.js';
import { CALLER, closed, event, SYSTEM } from './catalogue-entry.js';

const text = Type.String();
const count = Type.Integer({ minimum: 0 });
const budget = { budget_id: Uuid, name: text };
const scope = Type.Union([
  closed({ type: Type.Literal('organization') }),
  closed({ type: Type.Literal('label'), key: text, value: text }),
  closed({ type: Type.Literal('api_key'), api_key_id: Uuid }),
]);
const measure = Words(['cost', 'vcpu_hours', 'memory_gib_hours', 'disk_gib_hours', 'sandbox_hours']);
const covered = { scope, measure, currency: Nullable(text) };
const action = Words(['warn', 'refuse_starts', 'stop']);
const properties = { limit: text, thresholds: Type.Array(count), action };
const state = closed({ name: text, ...properties });

export const BUDGET_EVENTS = {
  budget_created: event('billing', CALLER, 'A budget was created.', { ...budget, ...covered, ...properties }),
  budget_updated: event('billing', CALLER, 'A budget was changed.', {
    ...budget,
    before: state,
    after: state,
  }),
  budget_deleted: event('billing', CALLER, 'A budget was deleted.', budget),
  budget_threshold_reached: event(
    'billing',
    SYSTEM,
    'The use of a budget reached a threshold, in per cent of its limit. Each threshold has one such event a month. A raised limit can be reached anew.',
    {
      ...budget,
      ...covered,
      threshold: count,
      limit: text,
      used: text,
      forecast: text,
      action,
      period_start: DateTime,
      period_end: DateTime,
    },
  ),
};
