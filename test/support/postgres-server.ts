import { execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import {
  accessSync,
  constants,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
  chownSync,
} from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { freePort } from './free-port.js';
import { until } from './polling.js';

/** The embedded PostgreSQL has no pg_basebackup. */
const BIN = '/usr/lib/postgresql/15/bin';

/** The reason for which servers of Debian's PostgreSQL cannot run here; undefined: they can. */
export function whyNoServers(): string | undefined {
  try {
    accessSync(join(BIN, 'pg_basebackup'), constants.X_OK);
  } catch {
    const reason = `there is no ${BIN}/pg_basebackup (on Debian: apt-get install postgresql-15)`;
    if (process.env['SANDKEEP_TEST_POSTGRES'] === 'required') throw new Error(reason);
    return reason;
  }
  return undefined;
}

/** PostgreSQL refuses to run as root. */
export function postgresUser(): { uid: number; gid: number } | Record<string, never> {
  if (process.getuid?.() !== 0) return {};
  const id = (flag: string) => Number(execFileSync('id', [flag, 'postgres'], { encoding: 'utf8' }));
  return { uid: id('-u'), gid: id('-g') };
}

/** A server of Debian's PostgreSQL on 127.0.0.1, with trust for every user. */
export class PostgresServer {
  private child: ChildProcess | undefined;

  private constructor(
    readonly directory: string,
    readonly port: number,
  ) {}

  /** Initializes a server. `parent` exists, and others may enter it. */
  static async make(parent: string, name: string): Promise<PostgresServer> {
    const server = new PostgresServer(prepare(parent, name), await freePort());
    server.run('initdb', [
      '--auth=trust',
      '--username=postgres',
      '--encoding=UTF8',
      '--locale=C.UTF-8',
      '--no-sync',
    ]);
    writeFileSync(join(server.directory, 'postgresql.conf'), settingsOf(server), { flag: 'a' });
    return server;
  }

  /** Copies a running server, as its standby. It waits for nobody when it becomes the primary. */
  static async copy(
    primary: PostgresServer,
    parent: string,
    name: string,
    port?: number,
  ): Promise<PostgresServer> {
    const server = new PostgresServer(prepare(parent, name), port ?? (await freePort()));
    server.run('pg_basebackup', [
      '--write-recovery-conf',
      '--checkpoint=fast',
      '--no-sync',
      '--wal-method=stream',
      `--dbname=postgres://postgres@127.0.0.1:${primary.port}/?application_name=${name}`,
    ]);
    const own = ["primary_conninfo = 'host=127.0.0.1", `port=${primary.port}`, `application_name=${name}'`];
    const text = `${own.join(' ')}\nsynchronous_standby_names = ''\n`;
    writeFileSync(join(server.directory, 'postgresql.auto.conf'), text);
    writeFileSync(join(server.directory, 'postgresql.conf'), settingsOf(server), { flag: 'a' });
    return server;
  }

  get url(): string {
    return `postgres://postgres@127.0.0.1:${this.port}/postgres`;
  }

  async start(settings: Readonly<Record<string, string>> = {}): Promise<void> {
    const options = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    const child = spawn(join(BIN, 'postgres'), ['-D', this.directory, ...options], {
      ...postgresUser(),
      cwd: this.directory,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let log = '';
    child.stderr.on('data', (chunk: Buffer) => (log = (log + chunk.toString()).slice(-5_000)));
    this.child = child;
    await until(
      async () => {
        if (child.exitCode !== null) throw new Error(`PostgreSQL ended: ${log}`);
        return this.query('select').then(
          () => true,
          () => false,
        );
      },
      (up) => up,
      60_000,
    );
  }

  /** Sends SIGKILL to all its processes. */
  async kill(): Promise<void> {
    const { child } = this;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const all = [child.pid!, ...childrenOf(child.pid!)];
    const gone = once(child, 'exit');
    for (const pid of all) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // It has just ended.
      }
    }
    await gone;
    rmSync(join(this.directory, 'postmaster.pid'), { force: true });
  }

  /** Resolves when the server accepts writes. */
  promote(): void {
    this.run('pg_ctl', ['promote', '--wait'], '--pgdata');
  }

  async query<Row extends pg.QueryResultRow>(text: string, database = 'postgres'): Promise<Row[]> {
    const client = new pg.Client({ host: '127.0.0.1', port: this.port, user: 'postgres', database });
    client.on('error', () => undefined);
    try {
      await client.connect();
      return (await client.query<Row>(text)).rows;
    } finally {
      await client.end().catch(() => undefined);
    }
  }

  private run(program: string, args: readonly string[], directory = '--pgdata'): void {
    const all = [...args, `${directory}=${this.directory}`];
    const options = { ...postgresUser(), cwd: this.directory, encoding: 'utf8' as const };
    const { status, stderr, error } = spawnSync(join(BIN, program), all, options);
    if (status !== 0) throw new Error(`${program} failed: ${stderr || String(error)}`);
  }
}

/** Makes the standby the one that each commit of the primary waits for. */
export async function makeSynchronous(primary: PostgresServer): Promise<void> {
  await primary.query("alter system set synchronous_standby_names = '*'");
  await primary.query('select pg_reload_conf()');
  await until(
    () => primary.query<{ sync_state: string }>('select sync_state from pg_stat_replication'),
    (rows) => rows.some(({ sync_state: state }) => state === 'sync'),
    60_000,
  );
}

function settingsOf({ port, directory }: PostgresServer): string {
  // Processes are killed, not the machine.
  const settings = {
    port: String(port),
    listen_addresses: "'127.0.0.1'",
    fsync: 'off',
    max_connections: '200',
  };
  const lines = Object.entries({ ...settings, unix_socket_directories: `'${directory}'` });
  return `${lines.map(([name, value]) => `${name} = ${value}`).join('\n')}\n`;
}

function prepare(parent: string, name: string): string {
  const directory = join(parent, name);
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { mode: 0o700 });
  const { uid, gid } = postgresUser();
  if (uid !== undefined) chownSync(directory, uid, gid);
  return directory;
}

function childrenOf(pid: number): number[] {
  return readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
    readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8').split(' ').filter(Boolean).map(Number),
  );
}
