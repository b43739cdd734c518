type LineEnds = '\n' | '\r\n';

/** The bytes of a file as a text that a field can show, whose lines end with LF. */
export type FileText = { isText: false } | { isText: true; text: string; ends: LineEnds };

/** A text in UTF-8 with one kind of line ends: only such a text is the same after it went through a field. */
export function readText(content: Uint8Array): FileText {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(content);
  } catch {
    return { isText: false };
  }
  if (text.includes('\0')) return { isText: false };
  const lines = text.split('\n');
  const withCr = lines.slice(0, -1).filter((line) => line.endsWith('\r')).length;
  const ends = withCr > 0 && withCr === lines.length - 1 ? '\r\n' : '\n';
  const shown = ends === '\n' ? text : text.replaceAll('\r\n', '\n');
  // A field turns every CR into LF.
  return shown.includes('\r') ? { isText: false } : { isText: true, text: shown, ends };
}

export function withEnds(text: string, ends: LineEnds): string {
  return ends === '\n' ? text : text.replaceAll('\n', '\r\n');
}
