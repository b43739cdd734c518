/** The value of a variable. Undefined: it is not set. */
export type Lookup = (name: string) => string | undefined;

const SPACE = /\s/;
const NAME = /^[A-Za-z_][A-Za-z0-9_]*/;

/** Splits at spaces outside of quotes. The words keep their quotes and escapes. */
export function splitWords(text: string, escape: string): string[] {
  const words: string[] = [];
  let word = '';
  let quote = '';
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at]!;
    if (quote === '' && SPACE.test(char)) {
      if (word !== '') words.push(word);
      word = '';
      continue;
    }
    if (char === escape && quote !== "'" && at + 1 < text.length) {
      word += char + text[at + 1]!;
      at += 1;
      continue;
    }
    if (quote === char) quote = '';
    else if (quote === '' && (char === '"' || char === "'")) quote = char;
    word += char;
  }
  return word === '' ? words : [...words, word];
}

/** Removes quotes and escapes, and replaces variables. Throws with a message for people. */
export function expandWord(word: string, escape: string, lookup: Lookup): string {
  return new Expansion(word, escape, lookup).whole();
}

class Expansion {
  private at = 0;

  constructor(
    private readonly text: string,
    private readonly escape: string,
    private readonly lookup: Lookup,
  ) {}

  whole(): string {
    return this.until('');
  }

  /** `end`: the character that ends it; empty: the end of the word. */
  private until(end: string): string {
    let value = '';
    while (this.at < this.text.length) {
      const char = this.text[this.at]!;
      if (char === end) {
        this.at += 1;
        return value;
      }
      this.at += 1;
      if (char === "'") value += this.literal();
      else if (char === '"') value += this.quoted();
      else if (char === '$') value += this.variable();
      else if (char === this.escape && this.at < this.text.length) value += this.text[this.at++]!;
      else value += char;
    }
    if (end !== '') throw new Error(`a variable has no "${end}" at its end`);
    return value;
  }

  private literal(): string {
    const end = this.text.indexOf("'", this.at);
    if (end === -1) throw new Error("a quote has no ' at its end");
    const value = this.text.slice(this.at, end);
    this.at = end + 1;
    return value;
  }

  private quoted(): string {
    let value = '';
    while (this.at < this.text.length) {
      const char = this.text[this.at++]!;
      if (char === '"') return value;
      const next = this.text[this.at];
      if (char === '$') value += this.variable();
      else if (char === this.escape && next !== undefined && ['"', '$', this.escape].includes(next)) {
        value += next;
        this.at += 1;
      } else value += char;
    }
    throw new Error('a quote has no " at its end');
  }

  private variable(): string {
    if (this.text[this.at] !== '{') {
      const [name] = NAME.exec(this.text.slice(this.at)) ?? [];
      if (name === undefined) return '$';
      this.at += name.length;
      return this.lookup(name) ?? '';
    }
    this.at += 1;
    const [name] = NAME.exec(this.text.slice(this.at)) ?? [];
    if (name === undefined) throw new Error('the name of a variable begins with a letter or "_"');
    this.at += name.length;
    const value = this.lookup(name);
    if (this.text[this.at] === '}') {
      this.at += 1;
      return value ?? '';
    }
    const countsEmpty = this.text[this.at] === ':';
    if (countsEmpty) this.at += 1;
    const operator = this.text[this.at++];
    if (operator !== '-' && operator !== '+') {
      throw new Error(`\${${name}…} has another operator than :- and :+, or no "}" at its end`);
    }
    const other = this.until('}');
    const isSet = value !== undefined && !(countsEmpty && value === '');
    if (operator === '-') return isSet ? value : other;
    return isSet ? other : '';
  }
}
