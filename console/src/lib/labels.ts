type Pairs = readonly (readonly [key: string, value: string])[];

/**
 * Pairs as people type them: `team=ml, env=prod`. A key or value with a comma is in quotes, `note="a, b"`, and a quote
 * in it is two. A part without `=` has an empty value.
 */
export function parsePairs(text: string): [string, string][] {
  const pairs: [string, string][] = [];
  let key: string | undefined;
  let part = '';
  let quotes: 'none' | 'open' | 'closed' = 'none';
  const take = () => {
    const taken = quotes === 'none' ? part.trim() : part;
    [part, quotes] = ['', 'none'];
    return taken;
  };
  const end = () => {
    const isEmpty = key === undefined && quotes === 'none' && part.trim() === '';
    if (!isEmpty) pairs.push(key === undefined ? [take(), ''] : [key, take()]);
    key = undefined;
    take();
  };
  for (let at = 0; at < text.length; at += 1) {
    const letter = text[at]!;
    if (quotes === 'open') {
      if (letter !== '"') part += letter;
      else if (text[at + 1] === '"') part += text[++at];
      else quotes = 'closed';
    } else if (letter === ',') end();
    else if (letter === '=' && key === undefined) key = take();
    else if (letter === '"' && part.trim() === '' && quotes === 'none') [part, quotes] = ['', 'open'];
    else if (quotes === 'none' || letter.trim() !== '') part += letter;
  }
  end();
  return pairs;
}

export function formatPairs(pairs: Pairs): string {
  return pairs
    .map(([key, value]) => `${quoted(key, /[",=]|^\s|\s$|^$/)}=${quoted(value, /^"|,|^\s|\s$/)}`)
    .join(', ');
}

export function parseLabels(text: string): Record<string, string> {
  return Object.fromEntries(parsePairs(text));
}

export function formatLabels(labels: Readonly<Record<string, unknown>>): string {
  return formatPairs(Object.entries(labels).map(([key, value]) => [key, String(value)]));
}

/** The labels of a filter, which the address has as JSON. Text that is none is shown as it is. */
export function shownLabels(json = ''): string {
  if (json === '') return '';
  try {
    return formatLabels(JSON.parse(json) as Record<string, unknown>);
  } catch {
    return json;
  }
}

function quoted(text: string, special: RegExp): string {
  return special.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
