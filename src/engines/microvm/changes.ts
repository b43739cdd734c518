import { EventEmitter, once } from 'node:events';
import { closeSync, openSync, watch, type FSWatcher } from 'node:fs';
import { changesFile } from './places.js';

/** The changes of records: supervisors write a byte to a file of the engine, and the kernel tells of it. */
export class Changes {
  private readonly events = new EventEmitter().setMaxListeners(0);
  private readonly watcher: FSWatcher;
  /** For supervisors, which inherit it. */
  readonly descriptor: number;

  constructor(engineDirectory: string) {
    const path = changesFile(engineDirectory);
    this.descriptor = openSync(path, 'a', 0o600);
    this.watcher = watch(path, { persistent: false }, () => this.announce());
    // Without inotify, the time loop sees the changes.
    this.watcher.on('error', () => undefined);
  }

  announce(): void {
    this.events.emit('change');
  }

  /** Resolves at the next change, after `ms`, or when the signal aborts. */
  async next(ms: number, signal?: AbortSignal): Promise<void> {
    const late = AbortSignal.timeout(ms);
    const ends = signal ? AbortSignal.any([signal, late]) : late;
    await once(this.events, 'change', { signal: ends }).catch(() => undefined);
  }

  close(): void {
    this.watcher.close();
    this.announce();
    closeSync(this.descriptor);
  }
}
