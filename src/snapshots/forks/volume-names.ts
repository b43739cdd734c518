import type { Sql } from '../../db/pool.js';
import { newId } from '../../lib/uuid.js';
import { takenNames, type CopiedSource } from '../../volumes/copy-queries.js';
import { NAME_LENGTH } from '../../volumes/schema.js';

/** A volume that a copy of a sandbox gets. */
export interface VolumeCopy {
  id: string;
  name: string;
  source: CopiedSource;
}

const ID_CHARACTERS = 12;

/**
 * The volumes of each copy, in the order of `sandboxes`, which are the names of the copies. A volume gets the names of
 * its source and of its sandbox, or a part of its id where that is too long or taken.
 */
export async function volumesOfCopies(
  tx: Sql,
  orgId: string,
  sources: readonly CopiedSource[],
  sandboxes: readonly string[],
): Promise<VolumeCopy[][]> {
  if (sources.length === 0) return sandboxes.map(() => []);
  const wanted = sandboxes.map((sandbox) =>
    sources.map((source) => ({ source, name: joined(source, sandbox) })),
  );
  const used = await takenNames(
    tx,
    orgId,
    wanted.flat().map(({ name }) => name),
  );
  const free = (name: string) => name.length <= NAME_LENGTH && !used.has(name);
  return wanted.map((ofCopy) =>
    ofCopy.map(({ source, name }) => {
      const id = newId();
      const chosen = free(name) ? name : withId(source, id);
      used.add(chosen);
      return { id, name: chosen, source };
    }),
  );
}

/** Names of sandboxes have characters that names of volumes lack. */
function joined({ name }: CopiedSource, sandbox: string): string {
  const part = sandbox.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-');
  return `${name}-${part}`.replace(/-$/, '');
}

/** The end of the id is random. */
function withId({ name }: CopiedSource, id: string): string {
  const end = id.slice(-ID_CHARACTERS);
  return `${name.slice(0, NAME_LENGTH - ID_CHARACTERS - 1).replace(/-$/, '')}-${end}`;
}
