import type pg from 'pg';
import {
  asOptions,
  connectionConfig,
  CANCELED,
  ConnectionLost,
  makeClient,
  Overloaded,
  sqlState,
  type Address,
  type ConnectionConfig,
  type Statement,
} from './pool.js';
import { isOutOfStep } from './prepared.js';
import { NAME_ORG, sessionFor } from './request-role.js';

/** PostgreSQL has a process for each connection. On two cores more connections are slower. */
const CONNECTIONS = 2;

/** Concurrency limit of a connection; further reads are refused. */
const MOST_UNDER_WAY = 5_000;

/** The longest statement; also the age of the oldest one at which a connection accepts no more. */
export const MOST_MS = 10_000;

/** PostgreSQL cancels every statement earlier, so a silent connection is broken. */
const SILENCE_MS = MOST_MS + 5_000;
const LOOK_EVERY_MS = 5_000;

export const READERS = 'sandkeep reads';

/**
 * One plan for all values and table sizes: the indexes in their order. Reads among 100,000 sandboxes take 0.15 to 0.45
 * ms with these settings and 0.25 to 0.6 ms without; `npm run bench -- hints` prints them.
 */
export const READ_SETTINGS = [
  `statement_timeout=${MOST_MS}`,
  'plan_cache_mode=force_generic_plan',
  'enable_seqscan=off',
  'enable_bitmapscan=off',
  'enable_sort=off',
];

export interface Reads {
  query<Row extends pg.QueryResultRow>(
    orgId: string,
    statement: string | Statement,
    values?: readonly unknown[],
  ): Promise<pg.QueryResult<Row>>;
  close(): Promise<void>;
}

type Result = pg.QueryResult<pg.QueryResultRow>;

/**
 * Sends statements without waiting for earlier answers, on two connections, for a third less CPU time than a pool
 * takes. Each read waits for earlier ones, so long reads use the pool.
 * A change of the organization goes right before the statement. `send` returns rows only after PostgreSQL confirmed the
 * change.
 */
export function openReads(
  address: Address,
  apart: boolean,
  onError: (error: Error) => void,
  { silenceMs = SILENCE_MS, lookEveryMs = LOOK_EVERY_MS } = {},
): Reads {
  const config = {
    ...connectionConfig(address, `${sessionFor(apart)} ${asOptions(READ_SETTINGS)}`),
    application_name: READERS,
    pipeline: true,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
  };
  const connections: Pipelined[] = [];
  let closed = false;

  /** The least busy connection; of several, one that has the organization already. */
  function choose(orgId: string): Pipelined {
    const rank = ({ underWay, orgId: served }: Pipelined) => underWay * 2 + (served === orgId ? 0 : 1);
    const [best, ...others] = connections;
    if (!best || (connections.length < CONNECTIONS && connections.every(({ underWay }) => underWay > 0))) {
      return connect();
    }
    return others.reduce((chosen, other) => (rank(other) < rank(chosen) ? other : chosen), best);
  }

  function connect(): Pipelined {
    const connection = new Pipelined(config, (error) => {
      const index = connections.indexOf(connection);
      // The driver may emit both `error` and `end`.
      if (index < 0) return;
      connections.splice(index, 1);
      if (error) onError(error);
    });
    connections.push(connection);
    return connection;
  }

  const looks = setInterval(() => {
    // A copy, since a connection that ends leaves the list.
    for (const connection of connections.slice()) connection.endIfSilent(silenceMs);
  }, lookEveryMs).unref();

  return {
    async query<Row extends pg.QueryResultRow>(
      orgId: string,
      statement: string | Statement,
      values?: readonly unknown[],
    ) {
      if (closed) throw new ConnectionLost('the connections for reads are closed');
      const whole =
        typeof statement === 'string' ? { text: statement, values: [...(values ?? [])] } : statement;
      const connection = choose(orgId);
      if (connection.underWay >= MOST_UNDER_WAY || connection.oldest < performance.now() - MOST_MS) {
        throw new Overloaded('reads that came before have no answer yet');
      }
      return (await connection.query(orgId, whole)) as pg.QueryResult<Row>;
    },
    async close() {
      closed = true;
      clearInterval(looks);
      await Promise.all(connections.map((connection) => connection.close()));
    },
  };
}

/** The organization of the next statements. `held`: PostgreSQL has confirmed it. */
interface Setting {
  orgId: string;
  held: boolean;
}

type Client = pg.Client & { ref(): void; unref(): void };

class Pipelined {
  /** The statements in flight, oldest first. */
  private readonly asked = new Set<{ at: number }>();
  private readonly client: Client;
  private readonly connected: Promise<void>;
  private isConnected = false;
  private givenUp = false;
  private gathering = false;
  private setting: Setting | undefined;
  /** The time of the latest answer, or of the first statement after idleness. */
  private heard = 0;

  /** `onGone`: the connection accepts no statements; with the error that broke it. */
  constructor(
    config: ConnectionConfig,
    private readonly onGone: (error?: Error) => void,
  ) {
    this.client = makeClient(config) as Client;
    this.client.on('error', (error) => onGone(error));
    this.client.on('end', () => onGone());
    this.connected = this.connect();
    // Each statement that awaits `connected` rejects too.
    this.connected.catch(() => undefined);
  }

  get orgId(): string | undefined {
    return this.setting?.orgId;
  }

  get underWay(): number {
    return this.asked.size;
  }

  get oldest(): number {
    for (const { at } of this.asked) return at;
    return Infinity;
  }

  async query(orgId: string, statement: Statement): Promise<Result> {
    const asked = { at: performance.now() };
    this.asked.add(asked);
    if (this.underWay === 1) {
      this.heard = asked.at;
      if (this.isConnected) this.client.ref();
    }
    try {
      if (!this.isConnected) await this.connected;
      return await this.send(orgId, statement);
    } finally {
      this.heard = performance.now();
      this.asked.delete(asked);
      if (this.underWay === 0 && this.isConnected) this.client.unref();
    }
  }

  private async connect(): Promise<void> {
    await this.client.connect().catch((error: unknown) => {
      this.onGone();
      throw error;
    });
    this.isConnected = true;
    if (this.underWay === 0) this.client.unref();
  }

  async close(): Promise<void> {
    await this.connected.catch(() => undefined);
    await this.client.end();
  }

  endIfSilent(millis: number): void {
    if (this.underWay === 0 || performance.now() < this.heard + millis) return;
    this.onGone(new ConnectionLost('PostgreSQL did not answer'));
    this.client.connection.stream.destroy();
  }

  private send(orgId: string, statement: Statement): Promise<Result> {
    this.gather();
    const setting = this.serve(orgId);
    return new Promise((resolve, reject) => {
      // PostgreSQL answers in order, so the answer about the organization precedes this one.
      this.client.query(statement, (error: Error | null, result: Result) => {
        if (!setting.held) {
          reject(new ConnectionLost('a connection was not set to its organization', { cause: error }));
        } else if (isOutOfStep(error)) {
          this.giveUp(error!);
          reject(new ConnectionLost('a connection lost its prepared statements', { cause: error }));
        } else if (sqlState(error) === CANCELED) {
          reject(new Overloaded('a read took too long', { cause: error }));
        } else if (error) reject(error);
        else resolve(result);
      });
    });
  }

  /** Sends the statements of one iteration of the event loop in one write. */
  private gather(): void {
    if (this.gathering) return;
    this.gathering = true;
    const { stream } = this.client.connection;
    stream.cork();
    setImmediate(() => {
      this.gathering = false;
      stream.uncork();
    });
  }

  private serve(orgId: string): Setting {
    if (this.setting?.orgId === orgId) return this.setting;
    const setting: Setting = { orgId, held: false };
    this.setting = setting;
    this.client.query({ ...NAME_ORG, values: [orgId] }, (error: Error | null, result: Result) => {
      setting.held = !error && result.rows[0]!['set_config'] === orgId;
      if (!setting.held) this.giveUp(error ?? new Error('the organization of a connection was not set'));
    });
    return setting;
  }

  private giveUp(cause: Error): void {
    if (this.givenUp) return;
    this.givenUp = true;
    this.onGone(cause);
    void this.client.end();
  }
}
