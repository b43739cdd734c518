import { SANDBOX_ID, VOLUME_ID } from '../http/example-ids.js';
import type { Examples } from '../http/examples.js';

const range = { since: '2026-11-01', until: '2026-11-30' };
const day = '2026-11-23T00:00:00Z';
const compute = { vcpu_seconds: 7200, mem_mib_seconds: 3686400, disk_mib_seconds: 0 };

export const usageExamples: Examples = {
  get_usage: {
    parameters: { month: '2026-11' },
    answer: {
      period_start: '2026-11-01T00:00:00Z',
      period_end: '2026-12-01T00:00:00Z',
      line_items: [
        { name: 'vcpu', quantity: 412.5, unit: 'vcpu_hour', amount_cents: 1650 },
        { name: 'memory_gib', quantity: 206.25, unit: 'memory_gib_hour', amount_cents: 206 },
        { name: 'disk_gib', quantity: 0, unit: 'disk_gib_hour', amount_cents: 0 },
        { name: 'storage_gib', quantity: 5280, unit: 'storage_gib_hour', amount_cents: 53 },
      ],
      total_cents: 1909,
      projected_spend_cents: 2571,
      currency: 'EUR',
      minor_unit_digits: 2,
      daily: [{ date: day, metric: 'vcpu', quantity: 24 }],
      storage_gib: 10,
    },
  },
  get_sandbox_breakdown: {
    parameters: range,
    answer: {
      rows: [{ day, sandbox_id: SANDBOX_ID, ...compute }],
      sandboxes: [{ id: SANDBOX_ID, name: 'web', slug: 'lively-pine-uiaj' }],
    },
  },
  get_label_breakdown: {
    parameters: { key: ['team', 'env'], ...range },
    answer: {
      keys: ['team', 'env'],
      currency: 'EUR',
      minor_unit_digits: 2,
      rows: [
        { day, values: ['ml', 'prod'], ...compute, cost: '0.1008' },
        { day, values: ['ml', null], ...compute, cost: '0.1008' },
      ],
      unlabelled: [{ day, ...compute, cost: '0.1008' }],
    },
  },
  get_storage_breakdown: {
    parameters: range,
    answer: {
      rows: [{ day, volume_id: VOLUME_ID, mib_seconds: 884736000 }],
      volumes: [{ id: VOLUME_ID, name: 'data' }],
    },
  },
};
