/**
 * Finds texts in each form in which a program writes them into a request: as they are, percent-encoded, or with the
 * escapes of JSON, also mixed. Requests are searched as latin1, a character for each byte, so every byte sequence is a
 * text.
 *
 * Regular expressions would do it in few lines. But guests choose the texts and the bodies: a text of backslashes takes
 * such an expression minutes, and the gateway serves all sandboxes.
 */

/**
 * A search may take so many steps for each character. Usual bodies take less than one: a step for each character with
 * which a text begins. A text that repeats itself takes one for each repetition.
 */
const STEPS_PER_CHARACTER = 2;
/** Pieces of one byte make the search begin anew a thousand times within one text. */
const FIRST_STEPS = 1_000_000;

/** Each occurrence takes memory. */
const MOST_FOUND = 65_536;

/** The search would take too long, because the texts and the searched bytes repeat themselves. */
export class SearchEffortError extends Error {
  constructor() {
    super('the search takes too long');
  }
}

/** The steps of one search, which may go through many pieces. */
export class Effort {
  private left = FIRST_STEPS;

  /** Further characters are searched. */
  grant(characters: number): void {
    this.left += characters * STEPS_PER_CHARACTER;
  }

  spend(): void {
    this.left -= 1;
    if (this.left < 0) throw new SearchEffortError();
  }
}

export interface Found {
  /** The position of the text in the list. */
  text: number;
  start: number;
  end: number;
}

interface Form {
  written: string;
  /** The code of its first character. */
  first: number;
  /** Its digits have either case. */
  isEscape: boolean;
}

/** The texts that have the same characters so far. */
interface Node {
  /** The forms of each further character that they share. */
  points: readonly (readonly Form[])[];
  /** The texts that end with the last of these. */
  texts: readonly number[];
  /** The others, by the code of the next character as it is written. */
  branches: ReadonlyMap<number, readonly { form: Form; next: Node }[]>;
}

/** A place in the texts and one in the searched bytes. */
interface Step {
  node: Node;
  /** The number of points of the node that were found. */
  count: number;
  at: number;
}

export class EncodedTexts {
  private readonly root: Node;
  /** The codes with which an occurrence begins. */
  private readonly firsts = new Uint8Array(256);

  constructor(texts: readonly string[]) {
    const all = texts.map((text, position) => ({ points: Array.from(text), position }));
    this.root = nodeOf(
      all.filter(({ points }) => points.length > 0),
      0,
    );
    const [first] = this.root.points;
    const codes = first === undefined ? this.root.branches.keys() : first.map((form) => form.first);
    for (const code of codes) this.firsts[code] = 1;
  }

  /**
   * The occurrences, in their order. The earlier beginning wins an overlap, then the longer text.
   * `unfinished`: where an occurrence may begin that goes on after the end. The length: there is none.
   */
  search(
    latin1: string,
    { effort = effortFor(latin1), accepts = () => true }: SearchOptions = {},
  ): { found: Found[]; unfinished: number } {
    const found: Found[] = [];
    let unfinished = latin1.length;
    for (let start = 0; start < latin1.length; start += 1) {
      if (this.firsts[latin1.charCodeAt(start)] !== 1) continue;
      const walk = this.walk(latin1, start, effort, accepts);
      if (walk.isUnfinished) unfinished = Math.min(unfinished, start);
      if (!walk.found) continue;
      if (found.length >= MOST_FOUND) throw new SearchEffortError();
      found.push(walk.found);
      start = walk.found.end - 1;
    }
    return { found, unfinished };
  }

  private walk(
    latin1: string,
    start: number,
    effort: Effort,
    accepts: (text: number) => boolean,
  ): { found?: Found; isUnfinished: boolean } {
    let found: Found | undefined;
    let isUnfinished = false;
    // Further ways: a backslash has two forms that may fit, itself and its escape.
    let open: Step[] | undefined;
    let seen: Map<Node, Set<number>> | undefined;
    for (let step: Step | undefined = { node: this.root, count: 0, at: start }; step; step = open?.pop()) {
      let { node, count, at } = step;
      for (;;) {
        effort.spend();
        // Ways that meet again are one.
        if (seen && isKnown(seen, node, count, at)) break;
        const isWhole = count === node.points.length;
        const text = isWhole ? node.texts.find(accepts) : undefined;
        if (text !== undefined && at > (found?.end ?? start)) found = { text, start, end: at };
        if (at === latin1.length) {
          isUnfinished ||= !isWhole || node.branches.size > 0;
          break;
        }
        const code = latin1.charCodeAt(at);
        const ways = isWhole ? (node.branches.get(code) ?? []) : node.points[count]!;
        let taken: Step | undefined;
        for (const way of ways) {
          const form = 'form' in way ? way.form : way;
          if (form.first !== code) continue;
          const fit = fitOf(form, latin1, at);
          if (fit === 'cut') isUnfinished = true;
          if (fit !== 'whole') continue;
          const end = at + form.written.length;
          const next =
            'form' in way ? { node: way.next, count: 1, at: end } : { node, count: count + 1, at: end };
          if (!taken) taken = next;
          else {
            seen ??= new Map();
            (open ??= []).push(next);
          }
        }
        if (!taken) break;
        ({ node, count, at } = taken);
      }
    }
    return { isUnfinished, ...(found && { found }) };
  }
}

function isKnown(seen: Map<Node, Set<number>>, node: Node, count: number, at: number): boolean {
  const places = seen.get(node) ?? new Set();
  const place = at * (node.points.length + 1) + count;
  if (places.has(place)) return true;
  seen.set(node, places.add(place));
  return false;
}

/** The first character fits. `cut`: it may go on after the end. */
function fitOf({ written, isEscape }: Form, latin1: string, at: number): 'whole' | 'cut' | 'none' {
  if (written.length === 1) return 'whole';
  const part = latin1.slice(at, at + written.length);
  if ((isEscape ? part.toLowerCase() : part) !== written.slice(0, part.length)) return 'none';
  return part.length < written.length ? 'cut' : 'whole';
}

function effortFor(latin1: string): Effort {
  const effort = new Effort();
  effort.grant(latin1.length);
  return effort;
}

interface SearchOptions {
  /** Default: of this search alone. */
  effort?: Effort;
  /** Default: every text counts. */
  accepts?: (text: number) => boolean;
}

/** Puts others in place of the occurrences. */
export function replaceFound(
  latin1: string,
  found: readonly Found[],
  replacement: (text: number, written: string) => string,
): string {
  let replaced = '';
  let from = 0;
  for (const { text, start, end } of found) {
    replaced += latin1.slice(from, start) + replacement(text, latin1.slice(start, end));
    from = end;
  }
  return replaced + latin1.slice(from);
}

interface Listed {
  points: readonly string[];
  position: number;
}

/** All of them share the points before `from`. */
function nodeOf(listed: readonly Listed[], from: number): Node {
  const [first, ...others] = listed;
  let end = from;
  const most = first?.points.length ?? from;
  const isShared = () => others.every(({ points }) => points[end] === first!.points[end]);
  while (end < most && isShared()) end += 1;
  const groups = new Map<string, Listed[]>();
  for (const one of listed) {
    const next = one.points[end];
    if (next !== undefined) groups.set(next, [...(groups.get(next) ?? []), one]);
  }
  const branches = new Map<number, { form: Form; next: Node }[]>();
  for (const [point, group] of groups) {
    const next = nodeOf(group, end);
    for (const form of formsOf(point)) {
      branches.set(form.first, [...(branches.get(form.first) ?? []), { form, next }]);
    }
  }
  return {
    points: first?.points.slice(from, end).map(formsOf) ?? [],
    texts: listed.filter(({ points }) => points.length === end).map(({ position }) => position),
    branches,
  };
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

const known = new Map<string, readonly Form[]>();
/** Texts of attackers have every character of Unicode. */
const MOST_KNOWN = 4_096;

/** The escapes have digits in lower case. */
function formsOf(point: string): readonly Form[] {
  const forms = known.get(point) ?? makeForms(point);
  if (known.size >= MOST_KNOWN) known.clear();
  known.set(point, forms);
  return forms;
}

function makeForms(point: string): readonly Form[] {
  const short = SHORT_ESCAPES[point];
  const asIs = short === undefined ? [latin1Of(point)] : [short, latin1Of(point)];
  // Forms of HTML write a space as a plus sign.
  if (point === ' ') asIs.push('+');
  const percent = [...Buffer.from(point)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('');
  const escapes = [percent, Array.from(point).flatMap(unitsOf).join('')];
  return [
    ...asIs.map((written) => ({ written, first: written.charCodeAt(0), isEscape: false })),
    ...escapes.map((written) => ({ written, first: written.charCodeAt(0), isEscape: true })),
  ];
}

function unitsOf(point: string): string[] {
  return Array.from({ length: point.length }, (_, unit) => {
    return `\\u${point.charCodeAt(unit).toString(16).padStart(4, '0')}`;
  });
}

export function latin1Of(text: string): string {
  return Buffer.from(text).toString('latin1');
}

/** Writes a text with the escapes that `written` has, because its reader decodes them. */
export function inFormOf(written: string, text: string): string {
  if (/%[0-9a-f]{2}/i.test(written)) return encodeURIComponent(text);
  if (written.includes('\\')) return latin1Of(JSON.stringify(text).slice(1, -1));
  return latin1Of(text);
}
