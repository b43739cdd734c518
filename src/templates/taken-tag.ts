import type { Reader } from '../access/reader.js';
import type { Sql } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import { findNamed } from './queries.js';

/** A build of a key that is narrowed to labels takes no tag from a template that the key does not see. */
export async function refuseTakenTag(sql: Sql, reader: Reader, name: string, tag: string): Promise<void> {
  const taken = await findNamed(sql, { ...reader, labels: {} }, name, tag);
  if (!taken || (await findNamed(sql, reader, name, tag))) return;
  throw new ApiError(
    'label_not_allowed',
    `the template "${name}:${tag}" lacks labels that the key is narrowed to: choose another name or tag`,
    { parameter: 'tag', labels: reader.labels },
  );
}
