import type pg from 'pg';
import type { FairSlots } from '../fairness/fair-slots.js';
import type { EventMarker, Pool, Sql, Statement } from './pool.js';
import { isOutOfStep } from './prepared.js';

export class SharedPool implements Pool {
  constructor(
    private readonly pool: Pick<Pool, 'connect'>,
    private readonly slots: FairSlots,
    private readonly key: string,
    readonly eventMarker: EventMarker | undefined,
  ) {}

  async connect(): Promise<pg.PoolClient> {
    const turn = this.slots.acquire(this.key);
    if (turn !== true) await turn;
    try {
      const client = await this.pool.connect();
      const release = client.release.bind(client);
      client.release = (error) => {
        release(error);
        this.slots.release(this.key);
      };
      return client;
    } catch (error) {
      this.slots.release(this.key);
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
