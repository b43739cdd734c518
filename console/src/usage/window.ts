const DAY_MS = 86_400_000;

/** UTC days, `until` excluded. */
export interface Window {
  since: string;
  until: string;
}

const dayOf = (millis: number) => new Date(millis).toISOString().slice(0, 10);
const startOfMonth = (day: string, months: number) => {
  const date = new Date(`${day.slice(0, 7)}-01T00:00:00Z`);
  date.setUTCMonth(date.getUTCMonth() + months);
  return dayOf(date.getTime());
};

export const dayAfter = (day: string, days = 1) => dayOf(Date.parse(`${day}T00:00:00Z`) + days * DAY_MS);

export function presets(now = Date.now()): Record<string, Window> {
  const today = dayOf(now);
  const tomorrow = dayAfter(today);
  return {
    '7 days': { since: dayAfter(today, -6), until: tomorrow },
    '30 days': { since: dayAfter(today, -29), until: tomorrow },
    'This month': { since: startOfMonth(today, 0), until: startOfMonth(today, 1) },
    'Last month': { since: startOfMonth(today, -1), until: startOfMonth(today, 0) },
  };
}

/** Every day of a window, at most `most`. */
export function daysOf({ since, until }: Window, most = 400): string[] {
  const days: string[] = [];
  for (let day = since; day < until && days.length < most; day = dayAfter(day)) days.push(day);
  return days;
}
