import { stringify } from 'csv-stringify/sync';

/** The end of every line of CSV, the last one too (RFC 4180). */
export const CSV_LINE_END = '\r\n';

/**
 * A spreadsheet runs a text as a formula if the text begins with one of `= + - @`, in either width, perhaps after white
 * space. An apostrophe before the text prevents that. Texts that begin with an apostrophe get one too, so that no two
 * texts become the same field. The pattern means the same in JavaScript and in PostgreSQL, where `\s` differs.
 */
const ESCAPED_START = String.raw`^[-=+@'\uff0b\uff0d\uff1d\uff20\t\n\v\f\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]`;
const ESCAPED_START_PATTERN = new RegExp(ESCAPED_START);

/** Lines of CSV. Texts that could be a formula are escaped, numbers are not; a field is quoted only if it must be. */
export function csvLines(records: readonly (readonly (string | number)[])[]): string {
  return stringify([...records], { record_delimiter: CSV_LINE_END, cast: { string: escapeFormula } });
}

/** The text as one field, quoted and escaped as by `csvLines`. */
export function csvField(text: string): string {
  return csvLines([[text]]).slice(0, -CSV_LINE_END.length);
}

function escapeFormula(text: string): string {
  return ESCAPED_START_PATTERN.test(text) ? `'${text}` : text;
}

/** An SQL expression: the text of `column` as a quoted field of CSV, escaped as by `csvLines`. Null remains null. */
export function csvFieldSql(column: string): string {
  const escaped = `regexp_replace(${column}, '${ESCAPED_START.replaceAll("'", "''")}', '''\\&')`;
  return `'"' || replace(${escaped}, '"', '""') || '"'`;
}
