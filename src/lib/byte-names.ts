import { Buffer } from 'node:buffer';

/**
 * Names and paths of Linux are bytes, and JSON has text. A byte that is not part of UTF-8 is `\x` with two digits, such
 * as `\xff`. A backslash in front of what would read as such a form is `\x5c`. Everything else stays as it is.
 */
const ESCAPE = /\\x([89a-f][0-9a-f]|5c)/g;
const LOOKS_ESCAPED = /\\(?=x(?:[89a-f][0-9a-f]|5c))/g;
const BACKSLASH = String.raw`\x5c`;

/** Two different names have two different texts, and `bytesOfName` inverts it. */
export function textOfName(bytes: Buffer): string {
  let text = '';
  let begin = 0;
  for (let at = 0; at < bytes.length;) {
    const length = characterAt(bytes, at);
    if (length > 0) {
      at += length;
      continue;
    }
    text += readable(bytes, begin, at) + escaped(bytes[at]!);
    at += 1;
    begin = at;
  }
  return text + readable(bytes, begin, bytes.length);
}

export function bytesOfName(text: string): Buffer {
  if (!text.includes('\\x')) return Buffer.from(text);
  const parts: Buffer[] = [];
  let begin = 0;
  for (const match of text.matchAll(ESCAPE)) {
    parts.push(Buffer.from(text.slice(begin, match.index)), Buffer.of(Number.parseInt(match[1]!, 16)));
    begin = match.index + match[0].length;
  }
  return Buffer.concat([...parts, Buffer.from(text.slice(begin))]);
}

function readable(bytes: Buffer, begin: number, end: number): string {
  const text = bytes.toString('utf8', begin, end);
  return text.includes('\\x') ? text.replace(LOOKS_ESCAPED, BACKSLASH) : text;
}

function escaped(byte: number): string {
  return String.raw`\x${byte.toString(16)}`;
}

/** The length of the character at `at`, by the table of RFC 3629, section 4. 0: there is none. */
function characterAt(bytes: Buffer, at: number): number {
  const first = bytes[at]!;
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  // Overlong forms, halves of surrogate pairs, and numbers above U+10FFFF.
  const least = first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
  const most = first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
  const second = bytes[at + 1] ?? 0;
  if (second < least || second > most) return 0;
  for (let next = 2; next < length; next += 1) {
    const byte = bytes[at + next] ?? 0;
    if (byte < 0x80 || byte > 0xbf) return 0;
  }
  return length;
}
