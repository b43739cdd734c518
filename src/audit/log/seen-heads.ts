import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { writeFileAtomically } from '../../lib/atomic-file.js';
import { ExplainedError } from '../../lib/explained-error.js';
import type { LogPosition } from '../events/hash-chain.js';

const LINE = /^([0-9a-f-]{36}) (\d{1,15}) ([0-9a-f]{64})$/;
const WRITE_EVERY_MS = 1_000;

export function seenHeadsFile({ dataDir }: { dataDir: string }): string {
  return join(dataDir, 'event-heads');
}

/**
 * The last seen head of each organization's log. Throws ExplainedError for a damaged file; a missing file has no heads.
 */
export function readSeenHeads(file: string): Map<string, LogPosition> {
  const heads = new Map<string, LogPosition>();
  if (!existsSync(file)) return heads;
  for (const line of readFileSync(file, 'utf8').split('\n')) {
    if (line === '') continue;
    const [, orgId, seq, link] = LINE.exec(line) ?? [];
    if (orgId === undefined) {
      throw new ExplainedError(
        `${file} is damaged: it has the last seen ends of the event logs; compare the logs with an export ("sandkeep events verify --against"), then remove the file`,
      );
    }
    heads.set(orgId, { seq: Number(seq), link: Buffer.from(link!, 'hex') });
  }
  return heads;
}

/**
 * Outside the database: they reveal a database that was set back to an earlier state. Processes with one data directory
 * share the file.
 */
export class SeenHeads {
  private readonly heads: Map<string, LogPosition>;
  private readonly unwritten = new Set<string>();
  private writtenAt = -Infinity;

  constructor(private readonly file: string) {
    this.heads = readSeenHeads(file);
  }

  get(orgId: string): LogPosition | undefined {
    return this.heads.get(orgId);
  }

  /** The head must be committed. */
  set(orgId: string, head: LogPosition): void {
    this.heads.set(orgId, head);
    this.unwritten.add(orgId);
  }

  /** Writes new heads to the file, at most once a second unless `now`. Throws ExplainedError for a damaged file. */
  async write({ now = false } = {}): Promise<void> {
    if (this.unwritten.size === 0 || (!now && performance.now() - this.writtenAt < WRITE_EVERY_MS)) return;
    this.writtenAt = performance.now();
    this.mergeFile();
    if (this.unwritten.size === 0) return;
    const lines = [...this.heads].map(
      ([orgId, { seq, link }]) => `${orgId} ${seq} ${link.toString('hex')}\n`,
    );
    await writeFileAtomically(this.file, lines.join(''), { replace: true });
  }

  /**
   * A head counts as written only when a later read finds it: another process may have replaced the file with its older
   * heads.
   */
  private mergeFile(): void {
    for (const [orgId, written] of readSeenHeads(this.file)) {
      const known = this.heads.get(orgId);
      if (known && known.seq > written.seq) continue;
      // For two links of one entry the link that this process saw stays.
      if (!known || known.seq < written.seq) this.heads.set(orgId, written);
      this.unwritten.delete(orgId);
    }
  }
}
