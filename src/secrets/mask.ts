import { Buffer } from 'node:buffer';

/** Shorter values are in too many other texts: a mask of `1` would hide every figure. */
const SHORTEST = 4;
const MASK = Buffer.from('***');

interface Value {
  bytes: Buffer;
  /** For each length of a beginning: the longest shorter beginning that is also its end (Knuth, Morris, Pratt). */
  fallback: Uint32Array;
}

/** Replaces secret values in output. A value with line breaks is masked line by line. */
export class SecretMask {
  private readonly values: readonly Value[];

  constructor(values: readonly string[]) {
    const lines = new Set(values.flatMap((value) => value.split(/\r?\n/)));
    this.values = [...lines]
      .map((line) => Buffer.from(line))
      .filter(({ length }) => length >= SHORTEST)
      // The longest first: it is the one that is replaced where two begin at one place.
      .toSorted((a, b) => b.length - a.length)
      .map((bytes) => ({ bytes, fallback: fallbackOf(bytes) }));
  }

  replaced(text: string): string {
    const stream = this.stream();
    return Buffer.concat([stream.push(Buffer.from(text)), stream.end()]).toString();
  }

  /** For output in pieces: the end of a piece that may be the beginning of a value waits for the next one. */
  stream(): MaskedStream {
    return new MaskedStream(this.values);
  }
}

export class MaskedStream {
  private held: Buffer = Buffer.alloc(0);

  constructor(private readonly values: readonly Value[]) {}

  push(piece: Buffer): Buffer {
    const data = this.held.length === 0 ? piece : Buffer.concat([this.held, piece]);
    const undecided = data.length - this.longestBeginningAtEnd(data);
    const out: Buffer[] = [];
    const next = this.values.map(({ bytes }) => data.indexOf(bytes));
    let position = 0;
    for (;;) {
      const match = this.firstMatch(data, position, next);
      // A longer value may begin at the same place, or earlier.
      if (match === undefined || match.start >= undecided) break;
      out.push(data.subarray(position, match.start), MASK);
      position = match.start + match.length;
    }
    const cut = Math.max(position, undecided);
    out.push(data.subarray(position, cut));
    this.held = Buffer.from(data.subarray(cut));
    return Buffer.concat(out);
  }

  /** The rest can hold whole values, which longer ones might have begun with. */
  end(): Buffer {
    const rest = this.held;
    this.held = Buffer.alloc(0);
    const out: Buffer[] = [];
    const next = this.values.map(({ bytes }) => rest.indexOf(bytes));
    let position = 0;
    for (;;) {
      const match = this.firstMatch(rest, position, next);
      if (match === undefined) break;
      out.push(rest.subarray(position, match.start), MASK);
      position = match.start + match.length;
    }
    return Buffer.concat([...out, rest.subarray(position)]);
  }

  /** `next`: where each value is found next, which is updated. */
  private firstMatch(
    data: Buffer,
    from: number,
    next: number[],
  ): { start: number; length: number } | undefined {
    let first: { start: number; length: number } | undefined;
    for (const [index, { bytes }] of this.values.entries()) {
      if (next[index]! !== -1 && next[index]! < from) next[index] = data.indexOf(bytes, from);
      const start = next[index]!;
      if (start !== -1 && (first === undefined || start < first.start))
        first = { start, length: bytes.length };
    }
    return first;
  }

  private longestBeginningAtEnd(data: Buffer): number {
    return Math.max(0, ...this.values.map((value) => beginningAtEnd(value, data)));
  }
}

function fallbackOf(bytes: Buffer): Uint32Array {
  const fallback = new Uint32Array(bytes.length + 1);
  for (let length = 2; length <= bytes.length; length += 1) {
    let shorter = fallback[length - 1]!;
    while (shorter > 0 && bytes[shorter] !== bytes[length - 1]) shorter = fallback[shorter]!;
    fallback[length] = bytes[shorter] === bytes[length - 1] ? shorter + 1 : 0;
  }
  return fallback;
}

/** The length of the longest beginning of a value, without the whole value, at the end of the data. */
function beginningAtEnd({ bytes, fallback }: Value, data: Buffer): number {
  let matched = 0;
  for (let index = Math.max(0, data.length - bytes.length + 1); index < data.length; index += 1) {
    while (matched > 0 && bytes[matched] !== data[index]) matched = fallback[matched]!;
    if (bytes[matched] === data[index]) matched += 1;
  }
  return matched;
}
