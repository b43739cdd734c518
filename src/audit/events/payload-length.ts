/** About how many bytes of payloads a statement returns. The payloads of imported events may have any length. */
export const MAX_PAYLOAD_BYTES = 4 * 1024 * 1024;

/** SQL for the length of a JSON column as text, in bytes. Short stored values are not decompressed to measure them. */
export function payloadLength(column: string): string {
  return `case when pg_column_size(${column}) > 500 then octet_length(${column}::text) else 500 end`;
}
