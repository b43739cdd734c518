import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks';
import { callbackify } from 'node:util';
import pg from 'pg';
import { poolConfig, poolOf, type Address, type Pool } from './pool.js';
import { REQUEST_ROLE } from './request-role.js';

const serving = new AsyncLocalStorage<string>();

/**
 * Runs `work` for an organization: it, and everything that it begins, sees and writes nothing of any other through the
 * connections of `openRequests`.
 *
 * Carried along by Node and not handed on, so that no operation can leave it out. What begins elsewhere, such as at the end
 * of a connection, has to be bound (`AsyncResource.bind`) or finds none.
 */
export function serveOrg<T>(orgId: string, work: () => T): T {
  return serving.run(orgId, work);
}

/**
 * The same items, each made for the organization that is being served now. Whoever sends them off may ask for the next when a
 * socket has room again, and that belongs to no request.
 */
export function servedAlong<T>(items: AsyncIterable<T>): AsyncIterable<T> {
  return {
    [Symbol.asyncIterator]() {
      const iterator = items[Symbol.asyncIterator]();
      const ended = { done: true, value: undefined } as const;
      return {
        next: AsyncResource.bind(() => iterator.next()),
        return: AsyncResource.bind(async () => (await iterator.return?.()) ?? ended),
      };
    },
  };
}

const NAME_ORG = {
  name: 'serve_org',
  text: "select set_config('sandkeep.org_id', $1, false)",
};

/**
 * The connections that serve requests. Row-level security shows them the organization that is being served and nothing else:
 * a statement that forgets it returns nothing of others. Outside of `serveOrg` there are none.
 *
 * `apart`: whether the user of the database can become the role for that (`canServe`); else only the statements themselves
 * keep organizations apart.
 */
export function openRequests(address: Address, apart: boolean, onError: (error: Error) => void): Pool {
  return poolOf(new RequestPool(poolConfig(address, apart ? `-c role=${REQUEST_ROLE}` : '')), onError);
}

type Callback = (
  error: Error | undefined,
  client: pg.PoolClient | undefined,
  done: (release?: boolean | Error) => void,
) => void;

class RequestPool extends pg.Pool {
  /** Whom each connection has served last. */
  private readonly served = new WeakMap<pg.PoolClient, string>();

  override connect(): Promise<pg.PoolClient>;
  override connect(callback: Callback): void;
  override connect(callback?: Callback): Promise<pg.PoolClient> | void {
    const connecting = () => this.connectFor(serving.getStore());
    if (!callback) return connecting();
    callbackify(connecting)((error: Error | null, client?: pg.PoolClient) => {
      callback(error ?? undefined, client, (release) => client?.release(release));
    });
  }

  private async connectFor(orgId: string | undefined): Promise<pg.PoolClient> {
    if (orgId === undefined) throw new Error('a connection for requests was asked for outside of a request');
    const client = await super.connect();
    if (this.served.get(client) === orgId) return client;
    try {
      await client.query({ ...NAME_ORG, values: [orgId] });
      this.served.set(client, orgId);
      return client;
    } catch (error) {
      client.release(error as Error);
      throw error;
    }
  }
}
