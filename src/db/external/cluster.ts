import pg from 'pg';
import { checkPooler } from './pooler.js';
import { describeHost, parseHosts, type Host } from './hosts.js';
import { readServerState, type ServerState } from './server-state.js';
import { readSeenTimeline, writeSeenTimeline } from './timeline-file.js';
import { ServerWatch } from './watch.js';

/** A server of the cluster gives no answer to a new connection for this long: the search ignores it. */
const SEARCH_MS = 3_000;
const WATCH_EVERY_MS = 1_000;

/** No server that answers may be used: each is a standby, or a previous primary. The database counts as unavailable. */
export class NoPrimary extends Error {}

export interface Held {
  host: Host | undefined;
  /** The server has shown that it is the primary. */
  admitted: boolean;
  /** Breaks it: every statement in progress fails. */
  breakOff(reason: string): void;
}

/**
 * The servers of an external database: one, or a primary with its standbys. All connections of the process share it.
 * Invariant: no connection leads to a standby, to another cluster, or to a timeline below one that was seen before.
 */
export class Cluster {
  readonly hosts: readonly Host[];
  readonly url: string;
  private current: Host | undefined;
  private searching: Promise<Host> | undefined;
  private pooler: Promise<void> | undefined;
  private system: string | undefined;
  private timeline = 0;
  private file: string | undefined;
  /** The cluster of the file. Another one replaces it at the first connection: the operator moved the database. */
  private systemOfFile: string | undefined;
  private readonly held = new Set<Held>();
  private watches: ServerWatch[] = [];
  private timer: NodeJS.Timeout | undefined;

  constructor(url: string) {
    ({ url: this.url, hosts: this.hosts } = parseHosts(url));
    if (this.hosts.length === 1) [this.current] = this.hosts;
  }

  /**
   * Keeps the latest timeline in a file, so that a restart does not forget it. Throws ExplainedError for a damaged
   * file.
   */
  keepIn(file: string): void {
    if (this.file !== undefined) return;
    this.file = file;
    const seen = readSeenTimeline(file);
    if (!seen || this.system !== undefined) return;
    this.timeline = seen.timeline;
    this.systemOfFile = seen.system;
  }

  /** The server for a new connection. Throws NoPrimary. */
  async choose(): Promise<Host> {
    const { current } = this;
    if (current && (this.hosts.length === 1 || this.isServing(current))) return current;
    this.searching ??= this.search().finally(() => (this.searching = undefined));
    return this.searching;
  }

  /** While a connection to a primary lives, it is one: a server becomes a standby only by a restart. */
  private isServing(host: Host): boolean {
    for (const held of this.held) if (held.host === host && held.admitted) return true;
    return false;
  }

  /** Throws NoPrimary unless the server may be used. */
  async admit(client: pg.Client, host: Host): Promise<{ pooled: boolean }> {
    const state = await readServerState(client);
    const refusal = this.refusal(host, state);
    if (refusal !== undefined) {
      this.forget(host);
      throw new NoPrimary(refusal);
    }
    this.accept(host, state);
    const pooled = state.pid !== (client as unknown as { processID: number }).processID;
    if (pooled) await this.requireSessions(host);
    return { pooled };
  }

  hold(held: Held): void {
    this.held.add(held);
    this.timer ??= setInterval(() => this.watch(), WATCH_EVERY_MS).unref();
  }

  letGo(held: Held): void {
    this.held.delete(held);
    if (this.held.size > 0) return;
    clearInterval(this.timer);
    this.timer = undefined;
    for (const watch of this.watches.splice(0)) watch.close();
  }

  /** The next connection searches for the primary. */
  forget(host: Host): void {
    if (this.hosts.length > 1 && this.current === host) this.current = undefined;
  }

  /** A client that asks this server about itself. */
  private makeProbe(host: Host): pg.Client {
    const client = new pg.Client({
      connectionString: this.url,
      application_name: 'sandkeep servers',
      connectionTimeoutMillis: SEARCH_MS,
    });
    client.on('error', () => undefined);
    aim(client, host);
    return client;
  }

  private async search(): Promise<Host> {
    const found = await Promise.all(this.hosts.map((host) => this.look(host)));
    const usable = found.filter(({ refusal }) => refusal === undefined);
    // Two servers may accept writes at once: a previous primary that was started again has the lower timeline.
    const [best] = usable.toSorted((a, b) => (b.state?.timeline ?? 0) - (a.state?.timeline ?? 0));
    if (!best) {
      const reasons = found.map(({ refusal }) => refusal).join('; ');
      throw new NoPrimary(`no server of the database URL is the primary: ${reasons}`);
    }
    this.accept(best.host, best.state!);
    return best.host;
  }

  private async look(host: Host): Promise<{ host: Host; state?: ServerState; refusal?: string }> {
    const client = this.makeProbe(host);
    const late = setTimeout(() => client.connection.stream.destroy(), SEARCH_MS);
    try {
      await client.connect();
      const state = await readServerState(client);
      const refusal = this.refusal(host, state);
      return { host, state, ...(refusal === undefined ? {} : { refusal }) };
    } catch (error) {
      const { message, code } = error as NodeJS.ErrnoException;
      return { host, refusal: `${describeHost(host)} cannot be used (${message || code})` };
    } finally {
      clearTimeout(late);
      void client.end().catch(() => undefined);
    }
  }

  private refusal(host: Host, { readOnly, system, timeline }: ServerState): string | undefined {
    const name = describeHost(host);
    if (readOnly) return `${name} is a standby or read-only`;
    if (system !== null && this.system !== undefined && system !== this.system) {
      return `${name} belongs to another cluster (system identifier ${system}, not ${this.system}): restart the service when the database was moved on purpose`;
    }
    if (timeline === null || timeline >= this.timeline) return undefined;
    if (this.system === undefined && system !== this.systemOfFile) return undefined;
    const remedy =
      this.file === undefined ? '' : `. If its return is intended, stop the service and remove ${this.file}`;
    return `${name} is a previous primary: its timeline is ${timeline}, and this service has used timeline ${this.timeline}${remedy}`;
  }

  private accept(host: Host, { system, timeline }: ServerState): void {
    if (this.hosts.length > 1) this.current = host;
    if (system === null || timeline === null) return;
    const isNew = this.system !== system || timeline > this.timeline;
    this.system = system;
    this.timeline = timeline;
    if (!isNew) return;
    if (this.file !== undefined) writeSeenTimeline(this.file, { system, timeline });
    this.breakOff(
      (held) => held.host !== undefined && held.host !== host,
      'another server became the primary',
    );
  }

  private breakOff(which: (held: Held) => boolean, reason: string): void {
    // A copy, since a connection that breaks off leaves the set.
    for (const held of Array.from(this.held)) if (which(held)) held.breakOff(reason);
  }

  /** Prepared statements, roles and notifications belong to a session, so a pooler must keep sessions apart. */
  private async requireSessions(host: Host): Promise<void> {
    this.pooler ??= checkPooler(() => this.makeProbe(host));
    await this.pooler.catch((error: unknown) => {
      this.pooler = undefined;
      throw error;
    });
  }

  /** Notices a new primary, and a server that answers nothing, although no connection reports an error. */
  private watch(): void {
    if (this.watches.length === 0) {
      this.watches = this.hosts.map(
        (host) =>
          new ServerWatch({
            make: () => this.makeProbe(host),
            onState: (state) => this.onState(host, state),
            onSilence: () => {
              this.forget(host);
              this.breakOff((held) => held.host === host, `${describeHost(host)} does not answer`);
            },
          }),
      );
    }
    for (const watch of this.watches) watch.tick();
  }

  private onState(host: Host, state: ServerState): void {
    if (this.refusal(host, state) !== undefined) {
      if (this.current === host || this.hosts.length === 1) {
        this.forget(host);
        this.breakOff((held) => held.host === host, `${describeHost(host)} is no longer the primary`);
      }
    } else if (state.timeline !== null && state.timeline > this.timeline) this.accept(host, state);
  }
}

/** Sets the server of a client that has not connected yet. Its configuration cannot: there the URL wins. */
export function aim(client: pg.Client, { host, port }: Host): void {
  const { connectionParameters } = client as unknown as { connectionParameters: Host };
  Object.assign(client, { host, port });
  Object.assign(connectionParameters, { host, port });
}

const clusters = new Map<string, Cluster>();

/**
 * The cluster is the process's: its connections must agree on the primary. Throws ExplainedError for a URL that cannot
 * be read.
 */
export function clusterOf(url: string): Cluster {
  let cluster = clusters.get(url);
  if (!cluster) clusters.set(url, (cluster = new Cluster(url)));
  return cluster;
}
