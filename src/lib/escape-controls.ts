/** Callers choose names: a name must not move the cursor of a terminal, change its colours or break the line. */
export function escapeControls(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g, (character) => {
    const code = character.codePointAt(0)!.toString(16);
    return `\\u${code.padStart(4, '0')}`;
  });
}

/** The same for a text with several lines, whose ends stay. */
export function escapeControlsInLines(text: string): string {
  return text.split('\n').map(escapeControls).join('\n');
}
