import pg from 'pg';
import {
  poolConfig,
  poolOf,
  type Address,
  type EventMarker,
  type Pool,
  type Sql,
  type Statement,
} from './pool.js';
import { isOutOfStep } from './prepared.js';
import { openReads, type Reads } from './pipelined-reads.js';
import { NAME_ORG, sessionFor } from './request-role.js';

/** Connections that show one organization and nothing else. */
interface OrgConnections {
  pool: Pool;
  /** Beside it, for reads of one short statement; see reads.ts. */
  reads: Sql;
}

/**
 * The connections that serve requests. Row-level security shows them the organization that is being served and nothing else: a
 * statement that forgets it returns nothing of others. There is no way to ask over them but for an organization.
 *
 * They are handed on from the request to whatever it does. Carried along by Node (`AsyncLocalStorage`) they could not be left
 * behind either, but on Node 20 that makes every promise of the process dearer: of a getting of one sandbox 34 of 282 microseconds.
 */
export interface Requests {
  of(orgId: string): OrgConnections;
  /** The pool behind them: to be watched, not to be asked. */
  watched: Pick<pg.Pool, 'totalCount' | 'idleCount'>;
  close(): Promise<void>;
}

/**
 * `apart`: whether the user of the database can become the role for that (`canServe`); else only the statements themselves
 * keep organizations apart.
 */
export function openRequests(
  address: Address,
  apart: boolean,
  onError: (error: Error) => void,
  eventMarker?: EventMarker,
): Requests {
  const pool = poolOf(new pg.Pool(poolConfig(address, sessionFor(apart))), onError);
  const reads = openReads(address, apart, onError);
  const served: Served = new WeakMap();
  return {
    of: (orgId) => ({
      pool: new OrgPool(pool, served, orgId, eventMarker),
      reads: new OrgReads(reads, orgId),
    }),
    watched: pool,
    close: async () => {
      await pool.end();
      await reads.close();
    },
  };
}

/** Whom each connection has served last. */
type Served = WeakMap<pg.PoolClient, string>;

class OrgPool implements Pool {
  constructor(
    private readonly pool: pg.Pool,
    private readonly served: Served,
    private readonly orgId: string,
    readonly eventMarker: EventMarker | undefined,
  ) {}

  async connect(): Promise<pg.PoolClient> {
    const client = await this.pool.connect();
    if (this.served.get(client) === this.orgId) return client;
    try {
      await client.query({ ...NAME_ORG, values: [this.orgId] });
      this.served.set(client, this.orgId);
      return client;
    } catch (error) {
      client.release(error as Error);
      throw error;
    }
  }

  async query<Row extends pg.QueryResultRow>(statement: string | Statement, values?: readonly unknown[]) {
    const client = await this.connect();
    let outOfStep = false;
    try {
      return await (client as Sql).query<Row>(statement, values);
    } catch (error) {
      outOfStep = isOutOfStep(error);
      throw error;
    } finally {
      // One that broke is not kept, either.
      client.release(outOfStep);
    }
  }
}

class OrgReads implements Sql {
  constructor(
    private readonly reads: Reads,
    private readonly orgId: string,
  ) {}

  query<Row extends pg.QueryResultRow>(statement: string | Statement, values?: readonly unknown[]) {
    return this.reads.query<Row>(this.orgId, statement, values);
  }
}
