import { closeSync, constants, fsyncSync, openSync, writeSync } from 'node:fs';
import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { writeFileAtomically } from '../../lib/atomic-file.js';
import type { Holding } from '../runtime.js';

const { O_APPEND, O_WRONLY } = constants;

type Entry = Holding | { sandboxId: string; removed: true };

/**
 * The record of a simulated engine: one holding (or its removal) a line, so that it is known after a `kill -9` what "ran
 * on". It is a file with a number, of which the highest counts. Who takes over makes the next one from it, which only one
 * process can, and only after one that was there while its term had not ended: neither what a predecessor that was cut off
 * still writes, nor a taking over that was held up in the middle, reaches the record that counts.
 */
export class SimulatedJournal {
  private constructor(private readonly file: number) {}

  /**
   * Begins the next file with what is held, or with the whole record where `keepsAll` says so, and returns what is held.
   * Throws when the term is over, or another process does so at the same time.
   */
  static async takeOver(
    directory: string,
    term: { readonly valid: boolean },
    keepsAll: boolean,
  ): Promise<{ journal: SimulatedJournal; holdings: Map<string, Holding> }> {
    const before = await readdir(directory);
    // Only now: a successor's file, which is made after the term, is not among those that were there before this.
    if (!term.valid) throw new Error('the term in which to take the simulated engine over has ended');
    const last = Math.max(0, ...before.map(numberOf));
    const lastFile = before.find((name) => numberOf(name) === last);
    const path = join(directory, `simulated.${last + 1}.ndjson`);
    try {
      const text = lastFile === undefined ? '' : await readFile(join(directory, lastFile), 'utf8');
      const holdings = replay(text);
      // A line that was cut short must not run into the next.
      const kept = keepsAll ? text.replace(/(?<=[^\n])$/, '\n') : [...holdings.values()].map(toLine).join('');
      await writeFileAtomically(path, kept, { replace: false });
      // There is also none where two have taken over since, of whom the second has removed the first one's.
      if ((await readdir(directory)).some((name) => numberOf(name) > last + 1)) {
        await rm(path, { force: true });
        throw new Rival();
      }
      const journal = new SimulatedJournal(openSync(path, O_WRONLY | O_APPEND));
      const obsolete = before.filter((name) => numberOf(name) >= 0 || DRAFT.test(name));
      // What stays does no harm, and is tried again by the next.
      for (const name of obsolete) await rm(join(directory, name), { force: true }).catch(() => undefined);
      return { journal, holdings };
    } catch (cause) {
      const { code } = cause as NodeJS.ErrnoException;
      throw code === 'EEXIST' || code === 'ENOENT' ? new Rival({ cause }) : cause;
    }
  }

  write(entry: Entry): void {
    writeSync(this.file, toLine(entry));
  }

  close(): void {
    fsyncSync(this.file);
    closeSync(this.file);
  }
}

class Rival extends Error {
  constructor(options?: ErrorOptions) {
    super('another process takes over the simulated engine at this moment', options);
  }
}

const DRAFT = /^simulated\.\d+\.ndjson\../;

/** -1 for what is not a record. Before files had numbers there was one without. */
function numberOf(name: string): number {
  const found = /^simulated\.(?:(\d+)\.)?ndjson$/.exec(name);
  return found ? Number(found[1] ?? 0) : -1;
}

function replay(text: string): Map<string, Holding> {
  const holdings = new Map<string, Holding>();
  for (const line of text.split('\n')) {
    const entry = parseLine(line);
    if (!entry) continue;
    if ('removed' in entry) holdings.delete(entry.sandboxId);
    else holdings.set(entry.sandboxId, entry);
  }
  return holdings;
}

/** Undefined for a line that a kill cut short, which was never acted upon. */
function parseLine(line: string): Entry | undefined {
  try {
    return JSON.parse(line) as Entry;
  } catch {
    return undefined;
  }
}

function toLine(entry: Entry): string {
  return `${JSON.stringify(entry)}\n`;
}
