import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { sleep } from '../../src/lib/sleep.js';
import { ObjectStore, type Change, type Selects, type Stored } from './object-store.js';
import { SimulatedNodes, type NodeTimes } from './simulated-nodes.js';

export interface ClusterOptions extends Partial<NodeTimes> {
  nodes?: number;
  /** How many changes the server remembers for watches. */
  history?: number;
  bookmarkMs?: number;
}

/** The requests and the bytes of all clients. */
export interface Traffic {
  /** Requests by method and collection, such as `LIST pods`. */
  requests: Record<string, number>;
  listBytes: number;
  watchBytes: number;
  watchEvents: number;
}

export interface Faults {
  /** Every event of a watch is sent twice. */
  duplicates: boolean;
  /** Requests are answered with this status. Undefined: as usual. */
  status: number | undefined;
}

const NAMESPACES = '/api/v1/namespaces';

/**
 * The part of the API of Kubernetes that a control plane of Pods uses, without a schema. It has create, get, list in
 * pages, watch with bookmarks, delete and patch of any kind. Pods start and end by themselves.
 */
export class SimulatedCluster {
  readonly store: ObjectStore;
  readonly nodes: SimulatedNodes;
  readonly traffic: Traffic = { requests: {}, listBytes: 0, watchBytes: 0, watchEvents: 0 };
  readonly faults: Faults = { duplicates: false, status: undefined };
  private readonly server = createServer((request, response) => {
    this.answer(request, response).catch((error: Error) => response.destroy(error));
  });
  private readonly watches = new Set<ServerResponse>();
  /** The pages that clients have not read yet. */
  private readonly pages = new Map<string, { version: number; items: Stored[] }>();
  private readonly bookmarkMs: number;

  private constructor({
    nodes = 2,
    history = 1_000,
    startMs = 50,
    stopMs = 50,
    bookmarkMs = 10_000,
  }: ClusterOptions) {
    this.store = new ObjectStore(history);
    const names = Array.from({ length: nodes }, (_, index) => `node${index + 1}`);
    this.nodes = new SimulatedNodes(this.store, { startMs, stopMs }, names);
    this.store.put(NAMESPACES, {
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: { name: 'default', uid: randomUUID() },
    });
    this.bookmarkMs = bookmarkMs;
  }

  static async open(options: ClusterOptions = {}): Promise<SimulatedCluster> {
    const cluster = new SimulatedCluster(options);
    await new Promise<void>((resolve) => cluster.server.listen(0, '127.0.0.1', resolve));
    return cluster;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  writeKubeconfig(file: string): void {
    const config = {
      apiVersion: 'v1',
      kind: 'Config',
      'current-context': 'simulated',
      clusters: [{ name: 'simulated', cluster: { server: this.url, 'insecure-skip-tls-verify': true } }],
      users: [{ name: 'user', user: { token: 'token' } }],
      contexts: [
        { name: 'simulated', context: { cluster: 'simulated', user: 'user', namespace: 'default' } },
      ],
    };
    writeFileSync(file, JSON.stringify(config));
  }

  pods(): Stored[] {
    return this.store.list(`${NAMESPACES}/default/pods`, () => true);
  }

  /** Breaks the connections of all watches. */
  dropWatches(): void {
    for (const watch of this.watches) watch.destroy();
  }

  /** Ends all watches with "410 Gone": their next versions are forgotten. */
  expireWatches(): void {
    this.store.forgetHistory();
    for (const watch of this.watches) watch.end(eventLine('ERROR', gone()));
  }

  async close(): Promise<void> {
    this.nodes.close();
    this.dropWatches();
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url!, 'http://cluster');
    const body = await readJson(request);
    const isWatch = url.searchParams.get('watch') === 'true';
    const target = targetOf(url.pathname);
    const verb =
      request.method === 'GET'
        ? isWatch
          ? 'WATCH'
          : target.name === undefined
            ? 'LIST'
            : 'GET'
        : request.method!;
    const counted = `${verb} ${target.kind}`;
    this.traffic.requests[counted] = (this.traffic.requests[counted] ?? 0) + 1;
    if (this.faults.status !== undefined) return fail(response, this.faults.status, 'a fault of the test');
    if (url.pathname === '/version') return void send(response, 200, { gitVersion: 'v1.30.0-simulated' });
    if (target.kind === 'selfsubjectaccessreviews')
      return void send(response, 201, { ...(body as object), status: { allowed: false } });
    const { collection, name } = target;
    if (verb === 'WATCH') return this.watch(url, collection, response);
    if (verb === 'LIST') return this.list(url, collection, response);
    if (verb === 'POST') return this.create(collection, body as Stored, response);
    const found = this.store.get(collection, name!);
    if (!found) return fail(response, 404, `${collection} has no "${name}"`);
    if (verb === 'DELETE')
      return this.remove(url, collection, found, body as DeleteOptions | undefined, response);
    if (verb === 'PATCH') return this.patch(collection, found, body as Patch[], response);
    if (verb === 'PUT') return void send(response, 200, this.store.put(collection, body as Stored));
    send(response, 200, found);
  }

  private create(collection: string, body: Stored, response: ServerResponse): void {
    const name = body.metadata.name;
    if (this.store.get(collection, name)) return fail(response, 409, `"${name}" already exists`);
    const metadata = { ...body.metadata, uid: randomUUID(), creationTimestamp: new Date().toISOString() };
    const isPod = collection.endsWith('/pods');
    const stored = this.store.put(collection, {
      ...body,
      metadata,
      ...(isPod ? { status: { phase: 'Pending' } } : {}),
    });
    send(response, 201, stored);
  }

  private remove(
    url: URL,
    collection: string,
    found: Stored,
    options: DeleteOptions | undefined,
    response: ServerResponse,
  ): void {
    const { name, finalizers = [], deletionTimestamp } = found.metadata;
    const text = url.searchParams.get('gracePeriodSeconds') ?? options?.gracePeriodSeconds;
    const deletionGracePeriodSeconds = Number(text ?? (collection.endsWith('/pods') ? 30 : 0));
    const isHeld = finalizers.length > 0 || deletionGracePeriodSeconds > 0;
    if (!isHeld) this.store.delete(collection, name);
    else {
      const at = deletionTimestamp ?? new Date().toISOString();
      const metadata = { ...found.metadata, deletionTimestamp: at, deletionGracePeriodSeconds };
      this.store.put(collection, { ...found, metadata });
    }
    send(response, 200, found);
  }

  /** Only the patch that removes a finalizer. */
  private patch(collection: string, found: Stored, patches: Patch[], response: ServerResponse): void {
    const index = Number(patches.at(-1)?.path.split('/').at(-1));
    const { finalizers = [], deletionGracePeriodSeconds } = found.metadata;
    if (finalizers[index] === undefined || finalizers[index] !== patches[0]?.value) {
      return fail(response, 422, 'the test of the patch failed');
    }
    const left = finalizers.toSpliced(index, 1);
    const stored = this.store.put(collection, {
      ...found,
      metadata: { ...found.metadata, finalizers: left },
    });
    if (left.length === 0 && deletionGracePeriodSeconds === 0)
      this.store.delete(collection, found.metadata.name);
    send(response, 200, stored);
  }

  private list(url: URL, collection: string, response: ServerResponse): void {
    const limit = Number(url.searchParams.get('limit') ?? Infinity);
    const token = url.searchParams.get('continue') ?? '';
    const page = this.pages.get(token);
    if (token !== '' && !page) return fail(response, 410, 'the continue token is too old');
    this.pages.delete(token);
    const { version, items } = page ?? {
      version: this.store.version,
      items: this.store.list(collection, selectorOf(url)),
    };
    const next = items.length > limit ? randomUUID() : undefined;
    if (next !== undefined) this.pages.set(next, { version, items: items.slice(limit) });
    const metadata = { resourceVersion: String(version), ...(next === undefined ? {} : { continue: next }) };
    this.traffic.listBytes += send(response, 200, { kind: 'List', metadata, items: items.slice(0, limit) });
  }

  private async watch(url: URL, collection: string, response: ServerResponse): Promise<void> {
    const version = Number(url.searchParams.get('resourceVersion') ?? 0);
    const missed = this.store.since(collection, version);
    if (!missed) return fail(response, 410, 'too old resource version');
    const selects = selectorOf(url);
    response.writeHead(200, { 'content-type': 'application/json' });
    response.flushHeaders();
    const write = (line: string) => {
      if (response.writableEnded) return;
      this.traffic.watchBytes += line.length;
      response.write(line);
    };
    const tell = (change: Change) => {
      if (change.collection !== collection || !selects(change.object)) return;
      const line = eventLine(change.type, change.object);
      for (let times = this.faults.duplicates ? 2 : 1; times > 0; times -= 1) {
        this.traffic.watchEvents += 1;
        write(line);
      }
    };
    for (const change of missed) tell(change);
    const unsubscribe = this.store.subscribe(tell);
    this.watches.add(response);
    const bookmark = () =>
      write(eventLine('BOOKMARK', { metadata: { name: '', resourceVersion: String(this.store.version) } }));
    const bookmarks = setInterval(bookmark, this.bookmarkMs);
    const closed = new AbortController();
    response.on('close', () => closed.abort());
    await sleep(Number(url.searchParams.get('timeoutSeconds') ?? 300) * 1_000, closed.signal);
    clearInterval(bookmarks);
    unsubscribe();
    this.watches.delete(response);
    response.end();
  }
}

interface DeleteOptions {
  gracePeriodSeconds?: number;
}

interface Patch {
  op: string;
  path: string;
  value?: unknown;
}

/** `/api/v1/namespaces/x/pods/y`: the collection, and the name in it. */
function targetOf(path: string): { collection: string; kind: string; name: string | undefined } {
  const parts = path.split('/').slice(1);
  const group = parts[0] === 'api' ? 2 : 3;
  const isNamespaced = parts[group] === 'namespaces' && parts.length > group + 2;
  const length = isNamespaced ? group + 3 : group + 1;
  return {
    collection: `/${parts.slice(0, length).join('/')}`,
    kind: parts[length - 1] ?? '',
    name: parts[length],
  };
}

/** Only equality, as in `a=b,c=d`. */
function selectorOf(url: URL): Selects {
  const wanted = (url.searchParams.get('labelSelector') ?? '')
    .split(',')
    .filter(Boolean)
    .map((term) => term.split('=') as [string, string]);
  return ({ metadata }) => wanted.every(([key, value]) => metadata.labels?.[key] === value);
}

function eventLine(type: string, object: unknown): string {
  return `${JSON.stringify({ type, object })}\n`;
}

function gone(): Record<string, unknown> {
  return {
    kind: 'Status',
    status: 'Failure',
    code: 410,
    reason: 'Expired',
    message: 'too old resource version',
  };
}

function send(response: ServerResponse, status: number, body: unknown): number {
  const text = JSON.stringify(body);
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(text);
  return text.length;
}

function fail(response: ServerResponse, code: number, message: string): void {
  send(response, code, { kind: 'Status', status: 'Failure', code, message });
}

async function readJson(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString();
  return text === '' ? undefined : JSON.parse(text);
}
