/** "1 problem", "2 problems". `plural`: for nouns that do not take an s. */
export function counted(count: number, noun: string, plural = `${noun}s`): string {
  return `${count} ${count === 1 ? noun : plural}`;
}
