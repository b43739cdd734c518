import { monthAfter, monthsBefore, startOfMonth, type Instant } from '../../lib/instant.js';

/**
 * Whole months, `to` not included. `events` has a partition for each month, and a statement that says in its text between which months
 * its events lie is planned for these only, once; one that does not opens every partition there is, which costs 30 µs each.
 */
export interface Window {
  from: Instant;
  to: Instant;
}

/** The month of `at`, and in its first week the one before, too: a page is hardly ever filled by a month that has just begun. */
export function windowAt(at: Instant): Window {
  const month = startOfMonth(at);
  return { from: Number(at.slice(8, 10)) > 7 ? month : monthsBefore(month, 1), to: monthAfter(month) };
}

/** In SQL: as text of the statement, and not as its parameters, which are not known when it is planned. */
export function within(column: string, { from, to }: Window): string {
  return `${column} >= '${from}' and ${column} < '${to}'`;
}
