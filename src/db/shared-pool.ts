import type pg from 'pg';
import type { SlotQueue } from '../fairness/slot-queue.js';
import { Overloaded, type EventMarker, type Pool, type Sql, type Statement } from './pool.js';
import { isOutOfStep } from './prepared.js';

/** The refusal of the slots of connections. */
export const noConnection = () => new Overloaded('no connection was free in time');

export class SharedPool implements Pool {
  constructor(
    private readonly pool: Pick<Pool, 'connect'>,
    private readonly slots: SlotQueue,
    private readonly owner: string,
    readonly eventMarker: EventMarker | undefined,
  ) {}

  async connect(): Promise<pg.PoolClient> {
    const leave = this.slots.tryAcquire(this.owner) ?? (await this.slots.hold(this.owner));
    try {
      const client = await this.pool.connect();
      const release = client.release.bind(client);
      client.release = (error) => {
        release(error);
        leave();
      };
      return client;
    } catch (error) {
      leave();
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
