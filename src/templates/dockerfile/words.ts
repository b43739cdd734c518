import { DockerfileError } from './error.js';

/** Adds the line to messages of the expander. */
export function atLine<T>({ line }: { line: number }, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof DockerfileError) throw error;
    throw new DockerfileError(line, (error as Error).message);
  }
}

/** The value of a variable. Undefined: it is not set. */
export type Lookup = (name: string) => string | undefined;

/** The most bytes of a word with its variables replaced. */
export const MOST_WORD_BYTES = 64 * 1024;
/** The most bytes of all words of a Dockerfile: `ENV A=$A$A` doubles a variable with each instruction. */
export const MOST_EXPANDED_BYTES = 256 * 1024;
/** Each variable within the default of another one takes a part of the stack. */
const MOST_NESTED = 100;

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
  const value = new Expansion(word, escape, lookup).whole();
  if (Buffer.byteLength(value) > MOST_WORD_BYTES) refuseLong();
  return value;
}

/** Expands the words of one Dockerfile, and bounds their sum. */
export class WordExpander {
  private bytes = 0;

  constructor(private readonly escape: string) {}

  /** Throws with a message for people. */
  expand(word: string, lookup: Lookup): string {
    const value = expandWord(word, this.escape, lookup);
    this.count(value);
    return value;
  }

  /** Counts a text that becomes a variable without being a word of the Dockerfile. Throws as `expand` does. */
  count(text: string): void {
    this.bytes += Buffer.byteLength(text);
    if (this.bytes > MOST_EXPANDED_BYTES) {
      throw new Error(
        `the words and variables up to here have more than ${MOST_EXPANDED_BYTES} bytes in all: use fewer or shorter variables, or put the text into a file of the context`,
      );
    }
  }
}

function refuseLong(): never {
  throw new Error(
    `a word has more than ${MOST_WORD_BYTES} bytes with its variables replaced: use shorter variables, or put the text into a file of the context`,
  );
}

/** Checks the length before the text is made. A character has a byte at least. */
function join(value: string, more: string): string {
  if (value.length + more.length > MOST_WORD_BYTES) refuseLong();
  return value + more;
}

class Expansion {
  private at = 0;
  private depth = 0;

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
      if (char === "'") value = join(value, this.literal());
      else if (char === '"') value = join(value, this.quoted());
      else if (char === '$') value = join(value, this.variable());
      else if (char === this.escape && this.at < this.text.length) value = join(value, this.text[this.at++]!);
      else value = join(value, char);
    }
    if (end !== '') throw new Error(`a variable has no "${end}" at its end: add it`);
    return value;
  }

  private literal(): string {
    const end = this.text.indexOf("'", this.at);
    if (end === -1) throw new Error("a quote has no ' at its end: add it");
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
      if (char === '$') value = join(value, this.variable());
      else if (char === this.escape && next !== undefined && ['"', '$', this.escape].includes(next)) {
        value = join(value, next);
        this.at += 1;
      } else value = join(value, char);
    }
    throw new Error('a quote has no " at its end: add it');
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
    if (this.depth >= MOST_NESTED) {
      throw new Error(
        `a word has more than ${MOST_NESTED} variables within each other: use ENV for some of them`,
      );
    }
    this.depth += 1;
    const other = this.until('}');
    this.depth -= 1;
    const isSet = value !== undefined && !(countsEmpty && value === '');
    if (operator === '-') return isSet ? value : other;
    return isSet ? other : '';
  }
}
