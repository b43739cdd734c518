import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { freePort } from './free-port.js';
import { postgresUser, type PostgresServer } from './postgres-server.js';
import { until } from './polling.js';

const PROGRAM = '/usr/sbin/pgbouncer';

/** The reason for which PgBouncer cannot run here; undefined: it can. */
export function whyNoPgBouncer(): string | undefined {
  if (!spawnSync(PROGRAM, ['--version']).error) return undefined;
  const reason = `there is no ${PROGRAM} (on Debian: apt-get install pgbouncer)`;
  if (process.env['SANDKEEP_TEST_PGBOUNCER'] === 'required') throw new Error(reason);
  return reason;
}

export interface PgBouncer {
  urlOf(database: string): string;
  close(): Promise<void>;
}

export async function startPgBouncer(
  server: PostgresServer,
  parent: string,
  settings: Readonly<Record<string, string>>,
): Promise<PgBouncer> {
  const port = await freePort();
  const directory = join(parent, `pgbouncer-${port}`);
  mkdirSync(directory);
  const { uid, gid } = postgresUser();
  if (uid !== undefined) chownSync(directory, uid, gid);
  const all = {
    listen_addr: '127.0.0.1',
    listen_port: String(port),
    unix_socket_dir: '',
    auth_type: 'any',
    default_pool_size: '60',
    ...settings,
  };
  const lines = Object.entries(all).map(([name, value]) => `${name} = ${value}`);
  const file = join(directory, 'pgbouncer.ini');
  const database = `* = host=127.0.0.1 port=${server.port} user=postgres`;
  writeFileSync(file, `[databases]\n${database}\n[pgbouncer]\n${lines.join('\n')}\n`);
  const child = spawn(PROGRAM, [file], {
    ...postgresUser(),
    cwd: directory,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let log = '';
  child.stderr.on('data', (chunk: Buffer) => (log = (log + chunk.toString()).slice(-5_000)));
  await until(
    async () => {
      if (child.exitCode !== null) throw new Error(`PgBouncer ended: ${log}`);
      const client = new pg.Client({ host: '127.0.0.1', port, user: 'postgres', database: 'postgres' });
      client.on('error', () => undefined);
      const up = await client.connect().then(
        () => true,
        () => false,
      );
      await client.end().catch(() => undefined);
      return up;
    },
    (up) => up,
  );
  return {
    urlOf: (name) => `postgres://postgres@127.0.0.1:${port}/${name}`,
    async close() {
      const gone = once(child, 'exit');
      child.kill('SIGKILL');
      await gone;
    },
  };
}
