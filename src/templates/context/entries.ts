import { createHash } from 'node:crypto';
import { posix } from 'node:path';
import { textOfName } from '../../lib/byte-names.js';
import { PullError } from '../../registry/pull-error.js';
import type { Step } from '../../registry/step.js';
import type { TarEntry } from '../../registry/tar-entry.js';
import { TarScan } from '../../registry/tar-scan.js';

export const MOST_ENTRIES = 20_000;
const MOST_PATH = 1_024;
/** It has 32 headers at most. */
const STEP_BYTES = 16 * 1_024;

/** A part of the context. `path`: from its top, without "./". */
export interface ContextEntry {
  path: string;
  type: 'file' | 'directory' | 'symlink';
  mode: number;
  size: number;
  /** The place of the content in the archive. */
  position: number;
  /** The target of a link; the SHA-256 of a file. */
  content: string;
}

/** The archive cannot be used. Callers see the message. */
export class ContextError extends Error {}

/** Reads the entries of a context as it passes. A later entry replaces an earlier one with its path. */
export class ContextReader {
  private readonly entries = new Map<string, ContextEntry>();
  private readonly scan: TarScan;
  private open:
    { entry: ContextEntry; hash: ReturnType<typeof createHash>; kept: Buffer[] | undefined } | undefined;
  private readonly kept = new Map<string, Buffer>();

  /** Keeps the content of `keeps`, if it is a file of at most `mostKept` bytes. */
  constructor(
    private readonly keeps?: string,
    private readonly mostKept = 0,
  ) {
    this.scan = new TarScan({
      entry: (entry) => this.begin(entry),
      content: (bytes) => {
        this.open?.hash.update(bytes);
        this.open?.kept?.push(Buffer.from(bytes));
      },
    });
  }

  async push(chunk: Buffer, step: Step): Promise<void> {
    for (let at = 0; at < chunk.length; at += STEP_BYTES)
      await step(() => explained(() => this.scan.push(chunk.subarray(at, at + STEP_BYTES))));
  }

  /** By their paths. */
  end(): ReadonlyMap<string, ContextEntry> {
    explained(() => this.scan.end());
    this.close();
    return this.entries;
  }

  /** Undefined: it is not in the context, or is no file of this size. */
  contentOf(path: string): Buffer | undefined {
    return this.kept.get(path);
  }

  private begin(entry: TarEntry): void {
    this.close();
    const path = pathOf(entry.path);
    if (path === undefined) return;
    if (this.entries.size >= MOST_ENTRIES && !this.entries.has(path)) {
      throw new ContextError(
        `the context has more than ${MOST_ENTRIES} entries: leave some out by .dockerignore`,
      );
    }
    const { type, mode, size, position } = entry;
    if (type !== 'file' && type !== 'directory' && type !== 'symlink') {
      const kind =
        type === 'link' ? 'a hard link: pack it with --hard-dereference' : 'no file, directory or link';
      throw new ContextError(`"${path}" of the context is ${kind}`);
    }
    const content = type === 'symlink' ? textOf(entry.target) : '';
    if (content.length > MOST_PATH) {
      throw new ContextError(
        `the link "${path}" of the context leads to more than ${MOST_PATH} characters: leave it out`,
      );
    }
    const made = { path, type, mode: mode & 0o7777, size, position, content };
    this.entries.set(path, made);
    this.kept.delete(path);
    if (type !== 'file') return;
    const keeps = path === this.keeps && size <= this.mostKept;
    this.open = { entry: made, hash: createHash('sha256'), kept: keeps ? [] : undefined };
  }

  private close(): void {
    if (!this.open) return;
    const { entry, hash, kept } = this.open;
    entry.content = hash.digest('hex');
    if (kept) this.kept.set(entry.path, Buffer.concat(kept));
    this.open = undefined;
  }
}

function textOf(latin1: string): string {
  return textOfName(Buffer.from(latin1, 'latin1'));
}

/** Undefined: the top itself. */
function pathOf(latin1: string): string | undefined {
  const text = textOf(latin1);
  const parts = text.split('/');
  if (text.length > MOST_PATH) {
    throw new ContextError(
      `"${text.slice(0, 80)}…" of the context has a path of more than ${MOST_PATH} characters: leave it out`,
    );
  }
  if (text.startsWith('/') || parts.includes('..') || text.includes('\0')) {
    throw new ContextError(
      `"${text.slice(0, 200)}" of the context leads out of it: pack the context from its top`,
    );
  }
  const path = posix.normalize(text).replace(/\/$/, '');
  return path === '.' || path === '' ? undefined : path;
}

/** The scan speaks of layers of images. */
function explained<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof PullError)) throw error;
    throw new ContextError(error.message.replaceAll('a layer', 'the context'), { cause: error });
  }
}
