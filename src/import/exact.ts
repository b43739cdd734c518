import { isLosslessNumber, parse } from 'lossless-json';

/**
 * Why the JSON text of an event would not come back as it was written; undefined when it would. Hashes of the event log are made of
 * canonical JSON (RFC 8785), whose numbers are doubles, so what a double does not hold exactly cannot be kept under its hash.
 */
export function findInexact(text: string): string | undefined {
  let repeated: string | undefined;
  const event = parse(text, null, {
    onDuplicateKey: ({ key }) => {
      repeated ??= key;
    },
  }) as { payload?: unknown };
  if (repeated !== undefined) return `has the key ${JSON.stringify(repeated)} twice, with two values`;
  const inexact = findNumber(event.payload, 'payload');
  if (inexact === undefined) return undefined;
  return `${inexact.path} is ${inexact.text}, which would be changed: write it as a string`;
}

function findNumber(value: unknown, path: string): { path: string; text: string } | undefined {
  if (isLosslessNumber(value)) return isExact(value.value) ? undefined : { path, text: value.value };
  if (typeof value !== 'object' || value === null) return undefined;
  for (const [key, item] of Object.entries(value)) {
    const found = findNumber(item, Array.isArray(value) ? `${path}[${key}]` : `${path}.${key}`);
    if (found) return found;
  }
  return undefined;
}

/** Does the double that is nearest to the number have the same decimal digits when it is written? */
function isExact(text: string): boolean {
  const number = Number(text);
  return Number.isFinite(number) && decimalOf(text) === decimalOf(JSON.stringify(number));
}

/** One text for each decimal number: the sign, the digits without zeros at the ends, and the power of ten. */
function decimalOf(text: string): string {
  const match = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text)!;
  const [, sign, whole = '', fraction = '', exponent = '0'] = match;
  const digits = `${whole}${fraction}`.replace(/^0+/, '');
  let end = digits.length;
  while (digits[end - 1] === '0') end -= 1;
  const short = digits.slice(0, end);
  if (short === '') return `${sign}0`;
  return `${sign}${short}e${BigInt(exponent) - BigInt(fraction.length) + BigInt(digits.length - short.length)}`;
}
