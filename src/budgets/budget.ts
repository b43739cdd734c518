import type { EventActor } from '../audit/events/schema.js';
import type { Instant } from '../lib/instant.js';
import type { Decimal, Metric } from '../prices/price.js';

export const MEASURES = [
  'cost',
  'vcpu_hours',
  'memory_gib_hours',
  'disk_gib_hours',
  'sandbox_hours',
] as const;
type Measure = (typeof MEASURES)[number];

/** The metric of each measure of resources. */
export const METRIC_OF: Partial<Record<Measure, Metric>> = {
  vcpu_hours: 'vcpu_hour',
  memory_gib_hours: 'memory_gib_hour',
  disk_gib_hours: 'disk_gib_hour',
};

export const ACTIONS = ['warn', 'refuse_starts', 'stop'] as const;
type Action = (typeof ACTIONS)[number];

export const DEFAULT_THRESHOLDS: readonly number[] = [50, 80, 100];
export const MOST_THRESHOLDS = 10;
/** Above 100: an overrun can have events too. */
export const HIGHEST_THRESHOLD = 1_000;

/** A budget stops no sandbox with this label. */
export const KEEP_LABEL = { key: 'sandkeep.keep', value: 'true' } as const;

/** The usage that a budget covers. */
export type BudgetScope =
  | { type: 'organization' }
  | { type: 'label'; key: string; value: string }
  | { type: 'api_key'; api_key_id: string };

export interface Budget {
  org_id: string;
  id: string;
  name: string;
  scope: BudgetScope;
  measure: Measure;
  limit: Decimal;
  currency: string | null;
  thresholds: number[];
  action: Action;
  created_at: Instant;
  created_by: EventActor;
  updated_at: Instant;
  checked_until: Instant;
}

/** A sandbox that starts or runs. */
interface Covered {
  labels: Readonly<Record<string, string>>;
  /** The API key of its run. Null: the system started it. */
  keyId: string | null;
}

export function covers({ scope }: Pick<Budget, 'scope'>, { labels, keyId }: Covered): boolean {
  switch (scope.type) {
    case 'organization':
      return true;
    case 'label':
      return hasLabel(labels, scope);
    case 'api_key':
      return scope.api_key_id === keyId;
  }
}

/** `hasOwn`, because every object has an inherited `constructor`. */
export function hasLabel(
  labels: Readonly<Record<string, string>>,
  { key, value }: { key: string; value: string },
): boolean {
  return Object.hasOwn(labels, key) && labels[key] === value;
}
