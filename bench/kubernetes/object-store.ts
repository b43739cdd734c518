/** An object of the cluster. Each version is a new value, which nobody changes. */
export interface Stored {
  apiVersion?: string;
  kind?: string;
  metadata: Metadata;
  spec?: Record<string, unknown>;
  status?: Record<string, unknown>;
}

interface Metadata {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  labels?: Record<string, string>;
  finalizers?: string[];
  deletionTimestamp?: string;
  deletionGracePeriodSeconds?: number;
}

export interface Change {
  version: number;
  collection: string;
  type: 'ADDED' | 'MODIFIED' | 'DELETED';
  object: Stored;
}

export type Selects = (object: Stored) => boolean;

/** Collections of objects with one sequence of versions, as etcd keeps them for an API server. */
export class ObjectStore {
  version = 1;
  private readonly collections = new Map<string, Map<string, Stored>>();
  private history: Change[] = [];
  /** Changes up to this version are forgotten. */
  private forgotten = 0;
  private readonly listeners = new Set<(change: Change) => void>();

  constructor(private readonly historyLimit: number) {}

  get(collection: string, name: string): Stored | undefined {
    return this.collections.get(collection)?.get(name);
  }

  /** In the order of names. */
  list(collection: string, selects: Selects): Stored[] {
    return [...(this.collections.get(collection)?.values() ?? [])]
      .filter(selects)
      .toSorted((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1));
  }

  put(collection: string, object: Stored): Stored {
    const objects = this.collections.get(collection) ?? new Map<string, Stored>();
    this.collections.set(collection, objects);
    const type = objects.has(object.metadata.name) ? 'MODIFIED' : 'ADDED';
    const [, namespace] = /\/namespaces\/([^/]+)\//.exec(collection) ?? [];
    const metadata = namespace === undefined ? object.metadata : { ...object.metadata, namespace };
    const stored = this.next({ ...object, metadata });
    objects.set(object.metadata.name, stored);
    this.note({ version: this.version, collection, type, object: stored });
    return stored;
  }

  delete(collection: string, name: string): void {
    const object = this.get(collection, name);
    if (!object) return;
    this.collections.get(collection)!.delete(name);
    this.note({ version: this.version + 1, collection, type: 'DELETED', object: this.next(object) });
  }

  /** The changes of a collection after a version. Undefined: the store has forgotten some of them. */
  since(collection: string, version: number): Change[] | undefined {
    if (version < this.forgotten) return undefined;
    return this.history.filter((change) => change.collection === collection && change.version > version);
  }

  subscribe(listener: (change: Change) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** As etcd does when it compacts. */
  forgetHistory(): void {
    this.forgotten = this.version;
    this.history = [];
  }

  private next(object: Stored): Stored {
    this.version += 1;
    return { ...object, metadata: { ...object.metadata, resourceVersion: String(this.version) } };
  }

  private note(change: Change): void {
    this.history.push(change);
    if (this.history.length > 2 * this.historyLimit) {
      this.history = this.history.slice(-this.historyLimit);
      this.forgotten = this.history[0]!.version - 1;
    }
    for (const listener of this.listeners) listener(change);
  }
}
