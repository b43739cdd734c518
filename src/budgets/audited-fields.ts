import { decimalText } from '../prices/price.js';
import type { Budget } from './budget.js';

/** The fields of a budget that a change can set, beside its name. */
export function auditedFields({ limit, thresholds, action }: Budget) {
  return { limit: decimalText(limit), thresholds, action };
}
