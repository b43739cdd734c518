import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ExplainedError } from '../lib/explained.js';

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
    if (orgId === undefined) throw new ExplainedError(`${file} is not what Sandkeep wrote there`);
    heads.set(orgId, { seq: Number(seq), link: Buffer.from(link!, 'hex') });
  }
  return heads;
}

/**
 * Where the logs ended, outside the database: who can do anything there, or puts it back to an earlier state, cannot make an
 * end that was signed before look like the last. One line an organization.
 */
export class EventHeads {
  private readonly heads: Map<string, Head>;
  private changed = false;
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
    this.changed = true;
  }

  /** Writes the file when there is something new, once a second at most unless `now`. */
  async write({ now = false } = {}): Promise<void> {
    if (!this.changed || (!now && performance.now() - this.writtenAt < WRITE_EVERY_MS)) return;
    this.changed = false;
    this.writtenAt = performance.now();
    const lines = [...this.heads].map(
      ([orgId, { seq, link }]) => `${orgId} ${seq} ${link.toString('hex')}\n`,
    );
    const draft = `${this.file}.${randomBytes(6).toString('hex')}`;
    await writeFile(draft, lines.join(''), { mode: 0o600 });
    await rename(draft, this.file);
  }
}
