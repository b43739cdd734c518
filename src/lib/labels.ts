/** Reserved for labels that the service itself may set. */
const RESERVED = ['sandbox.', 'microsandbox.', 'service.'];
export const MAX_LABELS = 64;
/** In bytes. Key and value share an index entry, which holds about 2,700. */
export const MAX_KEY_BYTES = 256;
export const MAX_VALUE_BYTES = 1024;
export const MAX_TOTAL_BYTES = 16 * 1024;

export function checkLabels(labels: Record<string, string>): { key: string; message: string } | undefined {
  const entries = Object.entries(labels);
  if (entries.length > MAX_LABELS) return { key: '', message: `there may be at most ${MAX_LABELS} labels` };
  let total = 0;
  for (const [key, value] of entries) {
    if (key === '') return { key, message: 'the key of a label must not be empty' };
    if (Buffer.byteLength(key) > MAX_KEY_BYTES) {
      return { key: key.slice(0, 40), message: `the key of a label has at most ${MAX_KEY_BYTES} bytes` };
    }
    const reserved = RESERVED.find((prefix) => key.startsWith(prefix));
    if (reserved) return { key, message: `labels that start with "${reserved}" are reserved` };
    if (Buffer.byteLength(value) > MAX_VALUE_BYTES) {
      return { key, message: `the value of a label has at most ${MAX_VALUE_BYTES} bytes` };
    }
    total += Buffer.byteLength(key) + Buffer.byteLength(value);
    if (total > MAX_TOTAL_BYTES) {
      return { key, message: `labels have at most ${MAX_TOTAL_BYTES} bytes of keys and values together` };
    }
  }
  return undefined;
}
