import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { writeFileAtomically } from '../../lib/atomic-file.js';
import { ExplainedError } from '../../lib/explained-error.js';

/** How far the log of an organization went when it was seen last. */
export interface Head {
  seq: number;
  link: Buffer;
}

const LINE = /^([0-9a-f-]{36}) (\d{1,15}) ([0-9a-f]{64})$/;
/** Between two writings, in milliseconds. */
const WRITE_EVERY_MS = 1_000;

export function headsFileOf({ dataDir }: { dataDir: string }): string {
  return join(dataDir, 'event-heads');
}

/** Throws ExplainedError for a file that is none; a missing one has no heads. */
export function readHeads(file: string): Map<string, Head> {
  const heads = new Map<string, Head>();
  if (!existsSync(file)) return heads;
  for (const line of readFileSync(file, 'utf8').split('\n')) {
    if (line === '') continue;
    const [, orgId, seq, link] = LINE.exec(line) ?? [];
    if (orgId === undefined) {
      throw new ExplainedError(
        `${file} is not what Sandkeep wrote there, which was where the logs of events ended: compare them with an export ("sandkeep events verify --against"), then remove the file`,
      );
    }
    heads.set(orgId, { seq: Number(seq), link: Buffer.from(link!, 'hex') });
  }
  return heads;
}

/**
 * Where the logs ended, outside the database: who can do anything there, or puts it back to an earlier state, cannot make an
 * end that was signed before look like the last. One line an organization. Processes with one data directory share the file.
 */
export class EventHeads {
  private readonly heads: Map<string, Head>;
  /** Organizations of which the file may not have what is known here. */
  private readonly unwritten = new Set<string>();
  private writtenAt = -Infinity;

  /** Throws ExplainedError. */
  constructor(private readonly file: string) {
    this.heads = readHeads(file);
  }

  get(orgId: string): Head | undefined {
    return this.heads.get(orgId);
  }

  /** To be called when it is committed. */
  note(orgId: string, head: Head): void {
    this.heads.set(orgId, head);
    this.unwritten.add(orgId);
  }

  /** Writes the file when there is something new, once a second at most unless `now`. Throws ExplainedError for a file that is none. */
  async write({ now = false } = {}): Promise<void> {
    if (this.unwritten.size === 0 || (!now && performance.now() - this.writtenAt < WRITE_EVERY_MS)) return;
    this.writtenAt = performance.now();
    this.takeWritten();
    if (this.unwritten.size === 0) return;
    const lines = [...this.heads].map(
      ([orgId, { seq, link }]) => `${orgId} ${seq} ${link.toString('hex')}\n`,
    );
    await writeFileAtomically(this.file, lines.join(''), { replace: true });
  }

  /**
   * Takes over what other processes wrote. What was written here counts as written when it is read again, the next time: another
   * process may have read the file before, and put what it knew in its place.
   */
  private takeWritten(): void {
    for (const [orgId, written] of readHeads(this.file)) {
      const known = this.heads.get(orgId);
      if (known && known.seq > written.seq) continue;
      // Of two that say otherwise of one entry the one stays that was seen here.
      if (!known || known.seq < written.seq) this.heads.set(orgId, written);
      this.unwritten.delete(orgId);
    }
  }
}
