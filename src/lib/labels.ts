/** Prefixes kept for what the service itself may one day say of a resource. */
const RESERVED = ['sandbox.', 'microsandbox.', 'service.'];
const MOST = 64;
/** Bytes. Key and value stand together in an index entry, which has room for some 2,700. */
const LONGEST_KEY = 256;
const LONGEST_VALUE = 1024;

/** The first label that is not allowed, and why. */
export function checkLabels(labels: Record<string, string>): { key: string; message: string } | undefined {
  const entries = Object.entries(labels);
  if (entries.length > MOST) return { key: '', message: `there may be at most ${MOST} labels` };
  for (const [key, value] of entries) {
    if (key === '') return { key, message: 'the key of a label must not be empty' };
    if (Buffer.byteLength(key) > LONGEST_KEY) {
      return { key: key.slice(0, 40), message: `the key of a label has at most ${LONGEST_KEY} bytes` };
    }
    const reserved = RESERVED.find((prefix) => key.startsWith(prefix));
    if (reserved) return { key, message: `labels that start with "${reserved}" are reserved` };
    if (Buffer.byteLength(value) > LONGEST_VALUE) {
      return { key, message: `the value of a label has at most ${LONGEST_VALUE} bytes` };
    }
  }
  return undefined;
}
