/** A comparison takes time in proportion to the pattern. */
export const MOST_PATTERN_CHARS = 256;

/** A character, `?`, `*`, or a set of a pattern. */
type Token = '*' | ((char: string) => boolean);

/**
 * Whether a path matches a pattern of COPY, by the rules of Go's `filepath.Match`: no part of the pattern matches "/".
 * Takes time in proportion to the product of their lengths at most: both are of a caller. Throws with a message for
 * people.
 */
export function makeMatcher(pattern: string): (path: string) => boolean {
  if (pattern.length > MOST_PATTERN_CHARS) {
    throw new Error(
      `the pattern "${pattern.slice(0, 80)}…" has more than ${MOST_PATTERN_CHARS} characters: name a directory, or use a shorter one`,
    );
  }
  const parts = pattern.split('/').map(tokensOf);
  return (path) => {
    const names = path.split('/');
    return names.length === parts.length && names.every((name, index) => matches(name, parts[index]!));
  };
}

export function isPattern(text: string): boolean {
  return /[*?[\\]/.test(text);
}

/** Throws with a message for people. */
function tokensOf(text: string): Token[] {
  const tokens: Token[] = [];
  const chars = Array.from(text);
  for (let at = 0; at < chars.length; at += 1) {
    const char = chars[at]!;
    if (char === '*') {
      if (tokens.at(-1) !== '*') tokens.push('*');
    } else if (char === '?') tokens.push(() => true);
    else if (char === '[') {
      const end = chars.indexOf(']', at + 2);
      if (end === -1) throw new Error(`the pattern "${text.slice(0, 80)}" has a "[" without "]"`);
      tokens.push(setOf(chars.slice(at + 1, end)));
      at = end;
    } else {
      const literal = char === '\\' ? chars[(at += 1)] : char;
      tokens.push((other) => other === literal);
    }
  }
  return tokens;
}

function setOf(content: readonly string[]): (char: string) => boolean {
  const isNegated = content[0] === '^';
  const chars = isNegated ? content.slice(1) : content;
  const ranges: [string, string][] = [];
  for (let at = 0; at < chars.length; at += 1) {
    const from = chars[at]!;
    const isRange = chars[at + 1] === '-' && at + 2 < chars.length;
    ranges.push([from, isRange ? chars[at + 2]! : from]);
    if (isRange) at += 2;
  }
  return (char) => ranges.some(([from, to]) => from <= char && char <= to) !== isNegated;
}

/** After a mismatch, the latest `*` takes one more character. */
function matches(name: string, tokens: readonly Token[]): boolean {
  const chars = Array.from(name);
  let [at, next, star, taken] = [0, 0, -1, 0];
  while (at < chars.length) {
    const token = tokens[next];
    if (token === '*') {
      star = next;
      taken = at;
      next += 1;
    } else if (token?.(chars[at]!)) {
      at += 1;
      next += 1;
    } else if (star >= 0) {
      taken += 1;
      at = taken;
      next = star + 1;
    } else return false;
  }
  return tokens.slice(next).every((token) => token === '*');
}
