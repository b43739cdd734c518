import pg from 'pg';
import {
  asOptions,
  connectionConfig,
  ConnectionLost,
  CANCELED,
  Overloaded,
  sqlState,
  type Address,
  type Statement,
} from './pool.js';
import { isOutOfStep } from './prepared.js';
import { NAME_ORG, sessionFor } from './request-role.js';

/** On two cores more of them are slower: PostgreSQL has a process for each. */
const CONNECTIONS = 2;

/** Statements under way on a connection: who asks beyond that is told so at once. */
const MOST_UNDER_WAY = 5_000;

/**
 * How long a statement may take, in milliseconds: all of them are short, but a table may be locked. While one has been under way for
 * so long, others are not sent after it.
 */
export const MOST_MS = 10_000;

/**
 * How long a connection may be silent while statements are under way, in milliseconds, and how often that is looked at. PostgreSQL
 * gives up any statement before; who does not hear of it is cut off.
 */
const SILENCE_MS = MOST_MS + 5_000;
const LOOK_EVERY_MS = 5_000;

/** What their sessions are called in `pg_stat_activity`. */
export const READERS = 'sandkeep reads';

/**
 * Every read has one plan for all values and all table sizes: through the indexes, in their order. A generic plan of the
 * planner's choice is right for few rows and a hundred times slower for many, and planning takes longer than most reads.
 * `npm run bench -- hints` prints reads with these settings and without them.
 */
export const READ_SETTINGS = [
  `statement_timeout=${MOST_MS}`,
  'plan_cache_mode=force_generic_plan',
  'enable_seqscan=off',
  'enable_bitmapscan=off',
  'enable_sort=off',
];

/** What runs the short reads of requests: one statement each, which nothing before or after belongs to. */
export interface Reads {
  /** As that of `Sql`, for an organization. */
  query<Row extends pg.QueryResultRow>(
    orgId: string,
    statement: string | Statement,
    values?: readonly unknown[],
  ): Promise<pg.QueryResult<Row>>;
  close(): Promise<void>;
}

type Result = pg.QueryResult<pg.QueryResultRow>;

/**
 * Two connections on which statements are sent while those before are still under way: a read waits for no free connection and takes
 * a third less time of both sides than through a pool. In exchange a statement waits for those that were sent before it on its
 * connection, so that what may take long, and every transaction, goes through `requests`.
 *
 * They show the organization that is being served and nothing else, as the connections of `openRequests` do; `apart` as there. Where
 * it is another one than before, it is set right before the statement, without waiting. PostgreSQL would run the statement also when
 * that failed, so nothing is given out before its setting is known to have held.
 */
export function openReads(
  address: Address,
  apart: boolean,
  onError: (error: Error) => void,
  { silenceMs = SILENCE_MS, lookEveryMs = LOOK_EVERY_MS } = {},
): Reads {
  const config = {
    ...connectionConfig(address, `${sessionFor(apart)} ${asOptions(READ_SETTINGS)}`),
    ...{ application_name: READERS, pipeline: true, keepAlive: true, keepAliveInitialDelayMillis: 10_000 },
  };
  const connections: Pipelined[] = [];
  let closed = false;

  /** The one with the fewest under way; of several, one that serves the organization already. */
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
      // It may be told of more than once.
      if (index < 0) return;
      connections.splice(index, 1);
      if (error) onError(error);
    });
    connections.push(connection);
    return connection;
  }

  const looks = setInterval(() => {
    for (const connection of [...connections]) connection.endIfSilent(silenceMs);
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

/** Whom the statements are for that are sent next. `held`: PostgreSQL has said so; false as long as it has not. */
interface Setting {
  orgId: string;
  held: boolean;
}

/** What the driver has and its types leave out: whether the connection keeps the process from ending. */
type Client = pg.Client & { ref(): void; unref(): void };

class Pipelined {
  /** When each statement that has no answer yet was asked for, in that order. */
  private readonly asked = new Set<{ at: number }>();
  private readonly client: Client;
  private readonly connected: Promise<void>;
  private isConnected = false;
  private givenUp = false;
  private gathering = false;
  private setting: Setting | undefined;
  /** When an answer came last, or the first was asked for after a rest. */
  private heard = 0;

  /** `onGone`: no more is to be sent on it; with what broke it, unless it was closed. */
  constructor(
    config: pg.ClientConfig,
    private readonly onGone: (error?: Error) => void,
  ) {
    this.client = new pg.Client(config) as Client;
    this.client.on('error', (error) => onGone(error));
    this.client.on('end', () => onGone());
    this.connected = this.connect();
    // Whoever asked for it hears of it, and when nobody waits any more nobody needs to.
    this.connected.catch(() => undefined);
  }

  get orgId(): string | undefined {
    return this.setting?.orgId;
  }

  /** Statements that have no answer yet. */
  get underWay(): number {
    return this.asked.size;
  }

  /** Since when there is no answer to one of them. */
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

  /** Answers what is under way first. */
  async close(): Promise<void> {
    await this.connected.catch(() => undefined);
    await this.client.end();
  }

  /** Cuts off who says nothing for so long while something is under way: all of that fails, and others connect anew. */
  endIfSilent(millis: number): void {
    if (this.underWay === 0 || performance.now() < this.heard + millis) return;
    this.onGone(new ConnectionLost('PostgreSQL did not answer'));
    this.client.connection.stream.destroy();
  }

  private send(orgId: string, statement: Statement): Promise<Result> {
    this.gather();
    const setting = this.serve(orgId);
    return new Promise((resolve, reject) => {
      // Answers come in the order in which statements were sent: that of the setting is there by now.
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

  /** What the requests ask for that are looked at in one turn of the event loop leaves in one write. */
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

  /** Nothing more is sent, and the connection ends. Who depends on what failed is refused in `send`. */
  private giveUp(cause: Error): void {
    if (this.givenUp) return;
    this.givenUp = true;
    this.onGone(cause);
    void this.client.end();
  }
}
