/** Labels as people type them, `team=ml, env=prod`, and as JSON. A part without `=` is a label with an empty value. */
export function parseLabels(text: string): Record<string, string> {
  const pairs = text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '')
    .map((part) => {
      const at = part.indexOf('=');
      return at < 0 ? [part, ''] : [part.slice(0, at).trim(), part.slice(at + 1).trim()];
    });
  return Object.fromEntries(pairs) as Record<string, string>;
}

export function formatLabels(labels: Readonly<Record<string, unknown>>): string {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${String(value)}`)
    .join(', ');
}
