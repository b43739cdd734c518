import { BUDGETS } from '../audit/events/actor.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { inTransaction, type Transaction } from '../db/transaction.js';
import { addMillis, monthAfter, shortInstant, startOfMonth, type Instant } from '../lib/instant.js';
import { decimalText } from '../prices/price.js';
import { percentOf, ratioText } from './amount.js';
import type { Budget } from './budget.js';
import { measureBudget, type Measured } from './measure.js';
import { isExhausted, reachedThresholds } from './present.js';
import { storeDays } from './usage-queries.js';
import { claimDue, deletePast, insertNotices, noteChecked, postponeCheck } from './queries.js';

/** The interval of two checks of one budget. */
const CHECK_EVERY_MS = 5_000;
/** The next check waits for so many times the duration of a check, so that checks take a small part of the worker. */
const PAUSE_FACTOR = 20;
const AFTER_FAILURE_MS = 60_000;
const SETTLES_AFTER_MS = 3_600_000;

/**
 * Writes the events of thresholds that were reached since the previous check. The notice of a threshold and its event
 * commit together, so each has one event a month, also after a crash and with several workers. `stopsUntil`:
 * the budget has to stop sandboxes until its month ends. Undefined: no check is due.
 */
export async function checkDueBudget(
  ctx: Context,
): Promise<{ budget: Budget; stopsUntil: Instant | null } | undefined> {
  let claimed: Budget | undefined;
  try {
    return await inTransaction(ctx.pool, async (tx) => {
      const at = ctx.now();
      const budget = await claimDue(tx, at);
      claimed = budget;
      if (!budget) return undefined;
      const began = performance.now();
      const current = startOfMonth(at);
      // The last use of a month may come after the last check in it.
      for (let month = startOfMonth(budget.checked_until); month < current; month = monthAfter(month)) {
        await noteReached(ctx, tx, budget, { month, at: monthAfter(month), now: at });
      }
      const measured = await noteReached(ctx, tx, budget, { month: current, at, now: at });
      if (startOfMonth(budget.checked_until) < current) await deletePast(tx, budget, current);
      // The first hour of a day may still change the last seconds of the previous one.
      const settled = addMillis(at, -SETTLES_AFTER_MS).slice(0, 10);
      await storeDays(tx, budget, measured?.unstored.filter(({ day }) => day < settled) ?? []);
      const pause = Math.max(CHECK_EVERY_MS, PAUSE_FACTOR * (performance.now() - began));
      const ratio = measured ? percentOf(measured.used, budget.limit) / 100 : null;
      await noteChecked(tx, budget, { until: at, next: addMillis(at, pause), ratio });
      const stops = budget.action === 'stop' && measured !== undefined && isExhausted(budget, measured);
      return { budget, stopsUntil: stops ? monthAfter(current) : null };
    });
  } catch (error) {
    if (!claimed) throw error;
    ctx.log.warn({ err: error, orgId: claimed.org_id, budgetId: claimed.id }, 'cannot check a budget');
    await postponeCheck(ctx.pool, claimed, addMillis(ctx.now(), AFTER_FAILURE_MS));
    return { budget: claimed, stopsUntil: null };
  }
}

async function noteReached(
  { settings: { priceBook: book } }: Context,
  tx: Transaction,
  budget: Budget,
  { month, at, now }: { month: Instant; at: Instant; now: Instant },
): Promise<Measured | undefined> {
  const measured = await measureBudget(tx, budget, { month, at, book });
  if (!measured) return undefined;
  const reached = reachedThresholds(budget, measured);
  if (reached.length === 0) return measured;
  for (const threshold of await insertNotices(tx, budget, month, reached)) {
    await recordEvent(tx, {
      orgId: budget.org_id,
      type: 'budget_threshold_reached',
      actor: BUDGETS,
      resourceId: budget.id,
      at: now,
      payload: {
        budget_id: budget.id,
        name: budget.name,
        scope: budget.scope,
        measure: budget.measure,
        currency: budget.currency,
        threshold,
        limit: decimalText(budget.limit),
        used: ratioText(measured.used),
        forecast: measured.forecast,
        action: budget.action,
        period_start: shortInstant(month),
        period_end: shortInstant(monthAfter(month)),
      },
    });
  }
  return measured;
}
