/**
 * A field of CSV (RFC 4180) in SQL. What a spreadsheet would take for a formula gets an apostrophe in front: people choose
 * names and labels, and others open the file. So does what begins with an apostrophe, that no two texts read alike.
 */
export function csvField(column: string): string {
  return `'"' || replace(regexp_replace(${column}, '^(?=\\s*[-=+@＝＋－＠]|[''\\s])', ''''), '"', '""') || '"'`;
}
