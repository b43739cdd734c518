import { callbackify } from 'node:util';
import pg from 'pg';
import { aim, NoPrimary, type Cluster, type Held } from './cluster.js';
import type { Host } from './hosts.js';
import { explainStart } from './pooler.js';

export interface PrimaryConfig extends pg.ClientConfig {
  cluster: Cluster;
}

type Callback = (error: Error | null, client: pg.Client) => void;

/** A server that accepts connections and answers nothing more, such as one that a pooler keeps waiting. */
const ADMISSION_MS = 10_000;
/** A time-out of statements, or somebody who cancels one. */
const CANCELED = '57014';

/**
 * A connection to the primary of an external database. `connect` resolves when the server has shown that it is the
 * primary. The connection breaks when the cluster finds another primary, or when the server answers nothing.
 */
export class PrimaryClient extends pg.Client {
  private readonly cluster: Cluster;
  private readonly settings: string;
  private readonly held: Held;

  constructor(config: PrimaryConfig) {
    super(config);
    this.cluster = config.cluster;
    this.settings = config.options ?? '';
    const breakOff = (reason: string) => void this.connection.stream.destroy(new NoPrimary(reason));
    this.held = { host: undefined, admitted: false, breakOff };
    // An error may come before the user of the connection listens.
    this.on('error', () => undefined);
  }

  override connect(): Promise<pg.Client>;
  override connect(callback: Callback): void;
  override connect(callback?: Callback): Promise<pg.Client> | void {
    if (!callback) return this.connectToPrimary();
    callbackify(() => this.connectToPrimary())((error) => callback(error, this));
  }

  private async connectToPrimary(): Promise<pg.Client> {
    const host = await this.cluster.choose();
    // The pool gave the connection up during the search.
    if (this.connection.stream.destroyed) throw new NoPrimary('the search for the primary took too long');
    aim(this, host);
    this.held.host = host;
    this.cluster.hold(this.held);
    this.once('end', () => this.cluster.letGo(this.held));
    try {
      await super.connect();
      await this.prove(host);
      return this;
    } catch (error) {
      this.connection.stream.destroy();
      this.cluster.letGo(this.held);
      this.cluster.forget(host);
      throw explainStart(error);
    }
  }

  private async prove(host: Host): Promise<void> {
    const late = setTimeout(
      () => this.held.breakOff('the server of the database did not answer in time'),
      ADMISSION_MS,
    );
    try {
      const { pooled } = await this.cluster.admit(this, host);
      if (pooled) await this.applySettings();
      this.held.admitted = true;
    } catch (error) {
      if ((error as { code?: string }).code !== CANCELED) throw error;
      throw new NoPrimary('a new connection was cancelled', { cause: error });
    } finally {
      clearTimeout(late);
    }
  }

  /** A pooler passes over the settings in the start of a connection. */
  private async applySettings(): Promise<void> {
    const settings = [...this.settings.matchAll(/-c ([a-z_.]+)=(\S+)/g)];
    await this.query(
      'select set_config(name, value, false) from unnest($1::text[], $2::text[]) as setting (name, value)',
      [settings.map(([, name]) => name), settings.map(([, , value]) => value)],
    );
  }
}
