import type { Sql } from '../../db/pool.js';
import { shortInstant } from '../../lib/instant.js';
import { genesisLink } from '../events/hash-chain.js';
import { linksAt, readCheckpoints } from '../log/chain-queries.js';
import type { Checkpoint } from '../log/checkpoint.js';
import type { LogEntry } from '../log/log-entry.js';

/** The place of an event in the log, with hashes in hexadecimal digits. */
export interface LogFacts {
  seq: number;
  leaf: string;
  link: string;
  /** Null: retention dropped the previous entry. */
  previous_link: string | null;
  unmarked: boolean;
  checkpoint: { at: string; key_id: string; signature: string } | null;
}

/** The facts of entries in order, by `seq`. `end`: the signed end of the log, if it is known. */
export async function readLogFacts(
  sql: Sql,
  orgId: string,
  entries: readonly LogEntry[],
  end?: Checkpoint,
): Promise<Map<number, LogFacts>> {
  if (entries.length === 0) return new Map();
  const links = new Map(entries.map(({ seq, link }) => [seq, link]));
  const unknown = entries.map(({ seq }) => seq - 1).filter((seq) => seq > 0 && !links.has(seq));
  if (unknown.length > 0) for (const [seq, link] of await linksAt(sql, orgId, unknown)) links.set(seq, link);
  links.set(0, genesisLink(orgId));
  const checkpoints = await readCheckpoints(sql, orgId, entries);
  if (end) checkpoints.set(end.seq, end);
  return new Map(
    entries.map(({ seq, leaf, link, unmarked }) => {
      const checkpoint = checkpoints.get(seq);
      return [
        seq,
        {
          seq,
          leaf: leaf.toString('hex'),
          link: link.toString('hex'),
          unmarked,
          previous_link: links.get(seq - 1)?.toString('hex') ?? null,
          checkpoint: checkpoint ? signed(checkpoint) : null,
        },
      ];
    }),
  );
}

function signed({ at, key_id, signature }: Checkpoint) {
  return { at: shortInstant(at), key_id, signature: signature.toString('base64') };
}
