import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeDirectories } from '../../src/lib/directories.js';
import { ExplainedError } from '../../src/lib/explained-error.js';
import type { Api } from './api.js';
import type { DataSet } from './data-set.js';
import { Generator, type Request } from './generate.js';
import { ensureLoaded, type Loaded } from './load.js';
import type { Read, Subject } from './measures.js';
import { serve, type Server } from './processes.js';
import type { Arm } from './rounds.js';
import { openStore, type Store } from './store.js';
import { apiOf, subjectOf } from './subject.js';

export interface SpeedOptions {
  scale: number;
  rounds: number;
  seconds: number;
  connections: number[];
  /** Parts of names of measures; all when empty. */
  only: string[];
  /** A directory that keeps the loaded data. */
  store?: string;
  /** A directory for a profile of the service's CPU time. */
  profile?: string;
}

const SIGNALS = ['SIGINT', 'SIGTERM'] as const;

/** A store with the service on it. */
export interface Side {
  store: Store;
  loaded: Loaded;
  server: Server;
  api: Api;
  subject: Subject;
}

/** Open resources, closed in the opposite order, also after a failure. */
export class Opened {
  private readonly closing: (() => Promise<unknown>)[] = [];

  add(close: () => Promise<unknown>): void {
    this.closing.push(close);
  }

  async close(): Promise<void> {
    for (const close of this.closing.splice(0).toReversed()) await close();
  }
}

/** The directory for stores: the named one, which stays, or one that is removed at the end. */
export async function withOpened(
  { store: kept }: SpeedOptions,
  work: (opened: Opened, directory: string, generator: Generator) => Promise<void>,
): Promise<void> {
  const directory = kept ?? mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const opened = new Opened();
  const tidy = async () => {
    await opened.close();
    if (kept === undefined) rmSync(directory, { recursive: true, force: true });
  };
  let interrupted = false;
  // A second signal ends the process at once.
  const interrupt = () => {
    interrupted = true;
    void tidy().finally(() => process.exit(130));
  };
  for (const signal of SIGNALS) process.once(signal, interrupt);
  try {
    const generator = Generator.start();
    opened.add(() => generator.stop());
    await work(opened, directory, generator);
  } finally {
    // The work failed because its resources were closed, so its error has no meaning.
    if (interrupted) await new Promise(() => undefined);
    for (const signal of SIGNALS) process.off(signal, interrupt);
    await tidy();
  }
}

/** Opens a store of this data set, loads it when needed, and starts the service on it. */
export async function openSide(
  opened: Opened,
  directory: string,
  dataSet: DataSet,
  what: string,
  profile?: string,
): Promise<Side> {
  try {
    makeDirectories(directory, 0o711);
  } catch (cause) {
    throw new ExplainedError(`${directory} cannot be used: ${(cause as Error).message}`, { cause });
  }
  const store = await openStore(directory);
  opened.add(() => store.close());
  const loaded = await ensureLoaded(store, dataSet, what);
  const server = await serve(store, profile);
  opened.add(() => server.stop());
  const api = apiOf(server, loaded);
  return { store, loaded, server, api, subject: await subjectOf(store, loaded, api) };
}

/** The reads of a side, spread over several processes of the service when they are given. */
export function readsOf(
  { store, server, api }: Side,
  paths: readonly Read[],
  servers: readonly Server[] = [server],
): Arm {
  const requests = paths.map((read): Request => {
    const { path, headers = {} } = typeof read === 'string' ? { path: read } : read;
    return { method: 'GET', path, headers: { authorization: `Bearer ${api.key}`, ...headers } };
  });
  return { servers, postmaster: store.postmaster, requests };
}
