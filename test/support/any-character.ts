import fc from 'fast-check';

const FIRST_SURROGATE = 0xd800;
const SURROGATES = 0x800;
const CODE_POINTS = 0x110000;

/**
 * A unit of texts: any code point. The unit `binary` of fast-check is the same, and fills a table of a million entries
 * each time it is named.
 */
export const anyCharacter = fc
  .nat(CODE_POINTS - SURROGATES - 1)
  .map((index) => String.fromCodePoint(index < FIRST_SURROGATE ? index : index + SURROGATES), indexOf);

function indexOf(character: unknown): number {
  const point = typeof character === 'string' ? character.codePointAt(0) : undefined;
  if (point === undefined || character !== String.fromCodePoint(point)) throw new TypeError('no character');
  return point < FIRST_SURROGATE ? point : point - SURROGATES;
}
