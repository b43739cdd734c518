/**
 * How many bytes of payloads are read at once, about: what Sandkeep writes is short, but a history that is imported may say
 * anything at any length.
 */
export const MOST_BYTES = 4 * 1024 * 1024;

/**
 * SQL for the length of a column of JSON as text, in bytes. What is not even long as it is stored, compressed, is not unpacked
 * for it.
 */
export function lengthOf(column: string): string {
  return `case when pg_column_size(${column}) > 500 then octet_length(${column}::text) else 500 end`;
}
