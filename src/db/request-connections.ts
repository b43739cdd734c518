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

interface OrgConnections {
  pool: Pool;
  reads: Sql;
}

/**
 * The connections of requests, each bound to an organization by row-level security. They are arguments of every operation:
 * `AsyncLocalStorage` would cost 34 of 282 µs of a read on Node 20.
 */
export interface Requests {
  of(orgId: string): OrgConnections;
  watched: Pick<pg.Pool, 'totalCount' | 'idleCount'>;
  close(): Promise<void>;
}

/**
 * `apart`: the user can become the request role (`canServe`). Otherwise only the conditions of statements separate
 * organizations.
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
