import { EventEmitter } from 'node:events';
import { closeSync, openSync, watch, type FSWatcher } from 'node:fs';
import { changesFile } from './places.js';

/** The changes of records: supervisors write a byte to a file of the engine, and the kernel reports the write. */
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
    await new Promise<void>((resolve) => {
      const done = () => {
        clearTimeout(late);
        this.events.off('change', done);
        signal?.removeEventListener('abort', done);
        resolve();
      };
      // A signal of AbortSignal.timeout may be collected before it aborts: Node 20 keeps no reference to it.
      const late = setTimeout(done, ms);
      this.events.on('change', done);
      signal?.addEventListener('abort', done);
      if (signal?.aborted) done();
    });
  }

  close(): void {
    this.watcher.close();
    this.announce();
    closeSync(this.descriptor);
  }
}
