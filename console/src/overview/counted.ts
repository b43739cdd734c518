/** The service counts up to this number. */
const MOST_COUNTED = 10_000;

export function counted(count: number): string {
  return count >= MOST_COUNTED ? '10,000+' : count.toLocaleString('en');
}
