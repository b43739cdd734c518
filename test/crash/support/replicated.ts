import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename } from 'node:path';
import { migrate } from '../../../src/db/migrate.js';
import { openPool, type PgPool } from '../../../src/db/pool.js';
import { makeSynchronous, PostgresServer } from '../../support/postgres-server.js';
import type { OwnDatabase, Replication } from './database.js';

/** A primary, and a standby that each commit waits for. The URL names both. */
export async function openReplicatedDatabase(): Promise<OwnDatabase> {
  const root = mkdtempSync(`${tmpdir()}/sandkeep-replicated-`);
  chmodSync(root, 0o755);
  let primary = await PostgresServer.make(root, 'first');
  await primary.start();
  let standby = await PostgresServer.copy(primary, root, 'second');
  await standby.start();
  await makeSynchronous(primary);
  const pools: PgPool[] = [];
  const names: string[] = [];
  let found: string[] | undefined;

  /** The number of events in each database. Every write of the service has an event, or is followed by one. */
  async function countEvents(server: PostgresServer): Promise<string[]> {
    const counts: string[] = [];
    for (const name of names) {
      const [row] = await server.query<{ count: string }>('select count(*) from events', name);
      counts.push(`${name}: ${row!.count} events`);
    }
    return counts;
  }

  const replication: Replication = {
    async killPrimary() {
      await primary.kill();
    },
    promote() {
      standby.promote();
      [primary, standby] = [standby, primary];
    },
    async resurrect() {
      await standby.start({ synchronous_standby_names: '' });
      found = await countEvents(standby);
    },
    async rejoin() {
      const before = found;
      const after = before && (await countEvents(standby));
      found = undefined;
      await standby.kill();
      standby = await PostgresServer.copy(primary, root, basename(standby.directory), standby.port);
      await standby.start();
      await makeSynchronous(primary);
      if (String(before) === String(after)) return;
      throw new Error(`the previous primary was written to: ${String(before)}, then ${String(after)}`);
    },
  };

  return {
    async create(name) {
      await primary.query(`create database ${name}`);
      const places = [primary, standby].map(({ port }) => `127.0.0.1:${port}`).toSorted();
      const url = `postgres://postgres@${places.join(',')}/${name}?target_session_attrs=read-write`;
      await migrate({ url });
      const pool = openPool({ url }, () => undefined);
      pools.push(pool);
      names.push(name);
      return { address: { url }, pool };
    },
    kill: undefined,
    replication,
    async close() {
      for (const pool of pools) await pool.end();
      for (const server of [primary, standby]) await server.kill();
      rmSync(root, { recursive: true, force: true });
    },
  };
}
