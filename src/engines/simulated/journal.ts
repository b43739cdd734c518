import { closeSync, constants, fsyncSync, openSync, writeSync } from 'node:fs';
import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { writeFileAtomically } from '../../lib/atomic-file.js';
import type { Holding } from '../../engine/runtime.js';
import { parseJson } from '../../lib/json.js';

const { O_APPEND, O_WRONLY } = constants;

/** `hasHandover`: it has the late parts of its specification. `memoryMib`: of its run. */
export type SimulatedHolding = Holding & { hasHandover?: boolean; memoryMib?: number };

type Entry = SimulatedHolding | { sandboxId: string; removed: true };

/**
 * One holding, or its removal, on each line. The file with the highest number counts. A takeover writes the next file,
 * if its lease was valid after it listed the files: a late predecessor or a delayed takeover cannot change it.
 */
export class SimulatedJournal {
  private constructor(private readonly file: number) {}

  /** Throws when the lease has ended, or when another process takes over at the same time. */
  static async takeOver(
    directory: string,
    term: { readonly valid: boolean },
    keepsAll: boolean,
  ): Promise<{ journal: SimulatedJournal; holdings: Map<string, SimulatedHolding> }> {
    const before = await readdir(directory);
    // A successor creates its file after this lease, so `before` cannot contain it.
    if (!term.valid) throw new Error('the lease on the simulated engine has ended');
    const last = Math.max(0, ...before.map(numberOf));
    const lastFile = before.find((name) => numberOf(name) === last);
    const path = join(directory, `simulated.${last + 1}.ndjson`);
    try {
      const text = lastFile === undefined ? '' : await readFile(join(directory, lastFile), 'utf8');
      const holdings = replay(text);
      // A truncated last line must not merge with the next one.
      const kept = keepsAll ? text.replace(/(?<=[^\n])$/, '\n') : [...holdings.values()].map(toLine).join('');
      await writeFileAtomically(path, kept, { replace: false });
      // Later takeovers may have created and removed this number: then a higher one exists.
      if ((await readdir(directory)).some((name) => numberOf(name) > last + 1)) {
        await rm(path, { force: true });
        throw new Rival();
      }
      const journal = new SimulatedJournal(openSync(path, O_WRONLY | O_APPEND));
      const obsolete = before.filter((name) => numberOf(name) >= 0 || DRAFT.test(name));
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

/** -1 for other files. Early journals had no number. */
function numberOf(name: string): number {
  const found = /^simulated\.(?:(\d+)\.)?ndjson$/.exec(name);
  return found ? Number(found[1] ?? 0) : -1;
}

function replay(text: string): Map<string, SimulatedHolding> {
  const holdings = new Map<string, SimulatedHolding>();
  for (const line of text.split('\n')) {
    const entry = parseLine(line);
    if (!entry) continue;
    if ('removed' in entry) holdings.delete(entry.sandboxId);
    else holdings.set(entry.sandboxId, entry);
  }
  return holdings;
}

/** Undefined for a line that a kill truncated. */
function parseLine(line: string): Entry | undefined {
  return parseJson(line) as Entry | undefined;
}

function toLine(entry: Entry): string {
  return `${JSON.stringify(entry)}\n`;
}
