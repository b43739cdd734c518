import type { KubernetesObject, V1ListMeta } from '@kubernetes/client-node';
import { EventEmitter, once } from 'node:events';
import { sleep } from '../../lib/sleep.js';
import { limitTime } from '../../lib/time-limit.js';
import type { Cluster } from './client.js';
import { GONE, statusOf } from './errors.js';
import { KUBELET } from './names.js';
import { asError, followWatch } from './watch-request.js';

const FIRST_BACKOFF_MS = 250;
const MAX_BACKOFF_MS = 5_000;
const PAGE = 500;

interface Page<T> {
  items: T[];
  metadata?: V1ListMeta;
}

export interface Watched<T> {
  path: string;
  labelSelector?: string;
  groupOf?(object: T): string;
  /** Default: each object. */
  accepts?(object: T): boolean;
  list(page: { limit: number; _continue?: string; labelSelector?: string }): Promise<Page<T>>;
}

/**
 * The objects of one kind, as the API server has them: a list, then a watch from its version. A broken watch continues
 * from the latest version that it reached, or begins with another list when the server has forgotten it.
 *
 * The informer of the client library lacks these, and the reconciler relies on them:
 * - It stops at each error other than 410, and answers with its last list as if that were the present one.
 * - It has no deadline, so a watch that a proxy keeps open in silence is never noticed.
 * - It asks for no bookmarks, so a quiet kind is listed again whenever the server has compacted its version.
 */
export class WatchCache<T extends KubernetesObject> {
  private readonly objects = new Map<string, T>();
  private readonly groups = new Map<string, Map<string, T>>();
  private version: string | undefined;
  /** Counts the requests for another list. */
  private generation = 0;
  private failure: unknown = new Error('the list of the cluster is not read yet');
  private readonly changes = new EventEmitter().setMaxListeners(0);
  private readonly closing = new AbortController();
  private watching = new AbortController();
  private readonly ended: Promise<void>;

  constructor(
    private readonly cluster: Cluster,
    private readonly watched: Watched<T>,
  ) {
    this.ended = this.run();
  }

  /** Reads the list again. Throws when the API server does not answer. */
  async relist(): Promise<void> {
    this.version = undefined;
    this.generation += 1;
    this.failure = new Error('the list of the cluster is being read');
    const next = new Promise<void>((resolve, reject) => {
      this.changes.once('listed', (error: unknown) =>
        error === undefined ? resolve() : reject(asError(error)),
      );
    });
    this.watching.abort();
    await next;
  }

  /** Throws the reason while the API server cannot be reached. */
  assertReached(): void {
    if (this.failure !== undefined) throw asError(this.failure);
  }

  /** The latest that were read, also while the API server cannot be reached. */
  known(): T[] {
    return [...this.objects.values()];
  }

  /** The objects of a group. */
  of(group: string): T[] {
    return [...(this.groups.get(group)?.values() ?? [])];
  }

  get(name: string): T | undefined {
    return this.objects.get(name);
  }

  /** Resolves when `check` holds for the object of this name, and to false after `limitMs` or an abort. */
  async until(
    name: string,
    check: (object: T | undefined) => boolean,
    limitMs: number,
    signal?: AbortSignal,
  ): Promise<boolean> {
    const limit = limitTime(limitMs, signal);
    try {
      while (!check(this.get(name))) {
        if (limit.signal.aborted) return false;
        await once(this.changes, eventOf(name), { signal: limit.signal }).catch((error: unknown) => {
          if (!limit.signal.aborted) throw error;
        });
      }
      return true;
    } finally {
      limit.release();
    }
  }

  /**
   * Calls `listener` with the group of each changed object; undefined: anything may have changed. Returns the
   * unsubscriber.
   */
  subscribe(listener: (group: string | undefined) => void): () => void {
    this.changes.on('change', listener);
    return () => this.changes.off('change', listener);
  }

  async close(): Promise<void> {
    this.closing.abort();
    this.watching.abort();
    await this.ended;
  }

  private async run(): Promise<void> {
    let backoff = FIRST_BACKOFF_MS;
    while (!this.closing.signal.aborted) {
      try {
        this.watching = new AbortController();
        if (this.version === undefined) await this.listAll();
        await this.follow(this.watching.signal);
        backoff = FIRST_BACKOFF_MS;
      } catch (error) {
        if (statusOf(error) === GONE) this.version = undefined;
        else {
          this.failure = error;
          this.changes.emit('change');
        }
        await sleep(backoff, this.closing.signal);
        backoff = Math.min(backoff * 2, MAX_BACKOFF_MS);
      }
    }
  }

  private async listAll(): Promise<void> {
    const { generation } = this;
    try {
      const found = new Map<string, T>();
      let next: string | undefined;
      let version: string | undefined;
      do {
        const page = await this.watched.list({
          limit: PAGE,
          ...(next ? { _continue: next } : {}),
          ...(this.watched.labelSelector ? { labelSelector: this.watched.labelSelector } : {}),
        });
        for (const item of page.items) if (this.accepts(item)) found.set(item.metadata!.name!, slim(item));
        ({ _continue: next, resourceVersion: version } = page.metadata ?? {});
      } while (next);
      if (generation !== this.generation) return await this.listAll();
      for (const name of this.objects.keys()) if (!found.has(name)) this.forget(name);
      for (const [name, object] of found) this.put(name, object);
      this.version = version;
      this.failure = undefined;
      this.changes.emit('change');
      this.changes.emit('listed');
    } catch (error) {
      this.changes.emit('listed', error);
      throw error;
    }
  }

  private async follow(signal: AbortSignal): Promise<void> {
    const { path, labelSelector } = this.watched;
    await followWatch(this.cluster, path, {
      query: { resourceVersion: this.version, labelSelector },
      signal,
      onOpen: () => this.noteReached(),
      onEvent: (type, object) => this.apply(type, object as T),
    });
  }

  private apply(type: string, object: T): void {
    const { name, resourceVersion } = object.metadata ?? {};
    if (resourceVersion !== undefined && this.version !== undefined) this.version = resourceVersion;
    if (type === 'BOOKMARK' || name === undefined || !this.accepts(object)) return;
    if (type === 'DELETED') this.forget(name);
    else this.put(name, slim(object));
    this.changes.emit('change', this.watched.groupOf?.(object));
  }

  private accepts(object: T): boolean {
    return this.watched.accepts?.(object) ?? true;
  }

  private put(name: string, object: T): void {
    this.objects.set(name, object);
    this.changes.emit(eventOf(name));
    const group = this.watched.groupOf?.(object);
    if (group === undefined) return;
    const members = this.groups.get(group) ?? new Map<string, T>();
    this.groups.set(group, members.set(name, object));
  }

  private forget(name: string): void {
    const object = this.objects.get(name);
    this.objects.delete(name);
    this.changes.emit(eventOf(name));
    const group = object && this.watched.groupOf?.(object);
    const members = group === undefined ? undefined : this.groups.get(group);
    members?.delete(name);
    if (members?.size === 0) this.groups.delete(group!);
  }

  private noteReached(): void {
    if (this.failure === undefined) return;
    this.failure = undefined;
    this.changes.emit('change');
  }
}

/** The record of who set which field is larger than the rest. Only the time of the kubelet stays. */
function slim<T extends KubernetesObject>(object: T): T {
  const { metadata } = object;
  if (metadata?.managedFields === undefined) return object;
  metadata.managedFields = metadata.managedFields.flatMap(({ manager, time }) =>
    manager === KUBELET && time !== undefined ? [{ manager, time }] : [],
  );
  return object;
}

/** A wait for one object costs nothing when others change. */
function eventOf(name: string): string {
  return `object ${name}`;
}
