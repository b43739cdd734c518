import { BY_KEY, ORG_ID } from '../http/example-ids.js';
import type { Examples } from '../http/examples.js';

const budget_id = '01a206d4-f96a-775b-a087-81aeab380601';
const parameters = { budget_id };

const BUDGET = {
  id: budget_id,
  org_id: ORG_ID,
  name: 'machine learning',
  scope: { type: 'label', key: 'team', value: 'ml' },
  measure: 'vcpu_hours',
  limit: '1000',
  currency: null,
  thresholds: [50, 80, 100],
  action: 'refuse_starts',
  period_start: '2026-11-01T00:00:00Z',
  period_end: '2026-12-01T00:00:00Z',
  used: '612.5',
  forecast: '660.180722891566',
  used_percent: 61.25,
  reached: [50],
  state: 'warning',
  created_at: '2026-11-02T09:00:00.5Z',
  created_by: BY_KEY,
  updated_at: '2026-11-02T09:00:00.5Z',
};

export const budgetExamples: Examples = {
  list_budgets: {
    parameters: { limit: 20 },
    answer: { data: [BUDGET], has_more: false, next_cursor: null },
  },
  create_budget: {
    body: {
      name: BUDGET.name,
      scope: BUDGET.scope,
      measure: BUDGET.measure,
      limit: BUDGET.limit,
      action: BUDGET.action,
    },
    answer: BUDGET,
  },
  get_budget: { parameters, answer: BUDGET },
  update_budget: { parameters, body: { limit: '1000', action: 'refuse_starts' }, answer: BUDGET },
  delete_budget: { parameters, answer: { message: 'budget deleted' } },
};
