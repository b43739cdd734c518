import { readText } from './identity.js';
import { parseRecord, type RunRecord } from './record.js';

/** Undefined: no supervisor has begun. */
export async function readRecord({ record }: { record: string }): Promise<RunRecord | undefined> {
  const text = await readText(record);
  return text === undefined ? undefined : parseRecord(text);
}
