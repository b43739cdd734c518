/**
 * Finds a text in each form in which a program writes it into a request: as it is, percent-encoded, or with the escapes
 * of JSON, also mixed. Requests are searched as latin1, a character for each byte, so every byte sequence is a text.
 */
export class EncodedText {
  /** The most bytes that one occurrence takes. */
  readonly longest: number;
  /** The forms of each character. */
  private readonly points: readonly (readonly string[])[];
  private readonly first: ReadonlySet<string>;
  private readonly pattern: string;

  constructor(text: string) {
    this.points = [...text].map(formsOf);
    this.longest = this.points.reduce(
      (sum, forms) => sum + Math.max(...forms.map(({ length }) => length)),
      0,
    );
    this.first = new Set(this.points[0]?.flatMap((form) => [form[0]!, form[0]!.toUpperCase()]));
    // No form has a repetition, so a search takes time in proportion to the text.
    this.pattern = this.points.map((forms) => `(?:${forms.map(patternOf).join('|')})`).join('');
  }

  isIn(latin1: string): boolean {
    return new RegExp(this.pattern).test(latin1);
  }

  replaceIn(latin1: string, replacement: (found: string) => string): string {
    return latin1.replace(new RegExp(this.pattern, 'g'), replacement);
  }

  /** The position at which an occurrence may begin that goes on after the end. The length: there is none. */
  unfinishedIn(latin1: string): number {
    for (let at = Math.max(0, latin1.length - this.longest + 1); at < latin1.length; at++) {
      if (this.first.has(latin1[at]!) && this.isUnfinished(latin1, at)) return at;
    }
    return latin1.length;
  }

  private isUnfinished(latin1: string, start: number): boolean {
    let ends = new Set([start]);
    for (const forms of this.points) {
      const next = new Set<number>();
      for (const end of ends) {
        for (const form of forms) {
          const part = latin1.slice(end, end + form.length);
          if (part.length < form.length && isForm(form.slice(0, part.length), part)) return true;
          if (part.length === form.length && isForm(form, part)) next.add(end + form.length);
        }
      }
      ends = next;
      if (ends.size === 0) return false;
    }
    return false;
  }
}

const SHORT_ESCAPES: Record<string, string> = {
  '"': '\\"',
  '\\': '\\\\',
  '/': '\\/',
  '\b': '\\b',
  '\f': '\\f',
  '\n': '\\n',
  '\r': '\\r',
  '\t': '\\t',
};

/** The first has capitals as they are, the escapes have digits in lower case. */
function formsOf(point: string): string[] {
  const bytes = [...Buffer.from(point)];
  const short = SHORT_ESCAPES[point];
  return [
    // Before the character itself: a backslash begins its own escape.
    ...(short === undefined ? [] : [short]),
    latin1Of(point),
    bytes.map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join(''),
    [...point].flatMap(unitsOf).join(''),
    // Forms write a space as a plus sign.
    ...(point === ' ' ? ['+'] : []),
  ];
}

function unitsOf(point: string): string[] {
  return Array.from({ length: point.length }, (_, unit) => {
    return `\\u${point.charCodeAt(unit).toString(16).padStart(4, '0')}`;
  });
}

/** Digits of escapes have either case. */
function isForm(form: string, text: string): boolean {
  return isEscape(form) ? form === text.toLowerCase() : form === text;
}

function patternOf(form: string): string {
  const text = form.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
  return isEscape(form) ? text.replace(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`) : text;
}

function isEscape(form: string): boolean {
  return form.length > 2 && (form[0] === '%' || form.startsWith('\\u'));
}

export function latin1Of(text: string): string {
  return Buffer.from(text).toString('latin1');
}

/** Writes a text with the escapes that `found` has, because its reader decodes them. */
export function inFormOf(found: string, text: string): string {
  if (/%[0-9a-f]{2}/i.test(found)) return encodeURIComponent(text);
  if (found.includes('\\')) return latin1Of(JSON.stringify(text).slice(1, -1));
  return latin1Of(text);
}
