import { monthAfter, monthsBefore, startOfMonth, type Instant } from '../../lib/instant.js';

/** Whole months, `to` exclusive. A statement without literal bounds opens every partition, which costs 30 µs each. */
export interface MonthWindow {
  from: Instant;
  to: Instant;
}

/** The month of `at`. In its first week also the previous month: a new month seldom fills a page. */
export function recentMonths(at: Instant): MonthWindow {
  const month = startOfMonth(at);
  return { from: Number(at.slice(8, 10)) > 7 ? month : monthsBefore(month, 1), to: monthAfter(month) };
}

/** SQL with literal bounds: the planner does not know the values of parameters. */
export function inWindow(column: string, { from, to }: MonthWindow): string {
  return `${column} >= '${from}' and ${column} < '${to}'`;
}
