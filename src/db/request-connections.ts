import pg from 'pg';
import { SlotQueue } from '../fairness/slot-queue.js';
import {
  CONNECTIONS_OF_POOL,
  poolConfig,
  poolOf,
  type Address,
  type EventMarker,
  type Pool,
  type Sql,
  type Statement,
} from './pool.js';
import { openReads, type Reads } from './pipelined-reads.js';
import { NAME_ORG, sessionFor } from './request-role.js';
import { noConnection, SharedPool } from './shared-pool.js';

const WAIT = { maxWaitMs: 10_000, waiting: { total: Infinity, each: 5_000 } };
/** The connections that the requests of an organization use at once: some stay for others. */
export const POOL_SLOTS = { total: CONNECTIONS_OF_POOL, each: 12, ...WAIT };
/**
 * Reads in the two pipelines. A read waits for earlier ones of its pipeline, so only some of each organization enter
 * it.
 */
export const READ_SLOTS = { total: 64, each: 24, ...WAIT };

interface OrgConnections {
  pool: Pool;
  reads: Sql;
}

/**
 * The connections of requests, each bound to an organization by row-level security. They are arguments of every
 * operation: `AsyncLocalStorage` would cost 34 of 282 µs of a read on Node 20.
 */
export interface Requests {
  of(orgId: string): OrgConnections;
  watched: Pick<pg.Pool, 'totalCount' | 'idleCount' | 'waitingCount'>;
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
  const poolSlots = new SlotQueue({ ...POOL_SLOTS, refusal: noConnection });
  const readSlots = new SlotQueue({ ...READ_SLOTS, refusal: noConnection });
  return {
    of: (orgId) => ({
      pool: new OrgPool(pool, poolSlots, served, orgId, eventMarker),
      reads: new OrgReads(reads, readSlots, orgId),
    }),
    watched: pool,
    close: async () => {
      await pool.end();
      await reads.close();
    },
  };
}

type Served = WeakMap<pg.PoolClient, string>;

class OrgPool extends SharedPool {
  constructor(
    pool: pg.Pool,
    slots: SlotQueue,
    private readonly served: Served,
    private readonly orgId: string,
    eventMarker: EventMarker | undefined,
  ) {
    super(pool, slots, orgId, eventMarker);
  }

  override async connect(): Promise<pg.PoolClient> {
    const client = await super.connect();
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
}

class OrgReads implements Sql {
  constructor(
    private readonly reads: Reads,
    private readonly slots: SlotQueue,
    private readonly orgId: string,
  ) {}

  async query<Row extends pg.QueryResultRow>(statement: string | Statement, values?: readonly unknown[]) {
    return this.slots.run(this.orgId, async () => this.reads.query<Row>(this.orgId, statement, values));
  }
}
