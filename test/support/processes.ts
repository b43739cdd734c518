import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { sleep } from '../../src/lib/sleep.js';
import { makeMemoryFolder } from './memory-folder.js';
import { pollDelay } from './poll-delay.js';

const PROGRAM = join(PACKAGE_ROOT, 'bin', 'sandkeep');
/** Some seconds where nothing else runs. It is below the time limit of a test, so that the output is shown. */
const START_TIMEOUT_MS = 400_000;

/** A process that runs the built program. */
export interface Launched {
  process: ChildProcess;
  pid: number;
  /** Its output so far. */
  out(): string;
  err(): string;
  exited: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
}

/** A `sandkeep serve` that is ready. */
export interface Served extends Launched {
  dataDir: string;
  url: string;
  /** Undefined when this start did not create the first key. */
  firstKey: string | undefined;
}

export interface LaunchOptions {
  user?: { uid: number; gid: number };
  /** A command line to put in front, such as setpriv. */
  under?: readonly string[];
}

/** A new folder that others may enter, as the database may run as another user. */
export function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sandkeep-embedded-'));
  chmodSync(folder, 0o755);
  return folder;
}

/**
 * The same in memory, for databases on the simulated engine: PostgreSQL makes 1,400 files for each. Guests cannot have
 * files of such a folder, which may forbid programs.
 */
export function makeDatabaseFolder(): string {
  const folder = makeMemoryFolder();
  chmodSync(folder, 0o755);
  return folder;
}

export function copyFolder(from: string, to: string): void {
  const { status, stderr } = spawnSync('cp', ['-a', from, to], { encoding: 'utf8' });
  if (status !== 0) throw new Error(stderr);
}

/** Kills every process in or on the folder, then removes it. */
export async function cleanUp(folder: string): Promise<void> {
  await until('nothing runs on the folder', () => {
    const left = processesOn(folder);
    for (const { pid } of left) kill('SIGKILL', pid);
    return left.length === 0;
  });
  rmSync(folder, { recursive: true, force: true });
}

export function launch(args: readonly string[], options: LaunchOptions = {}): Launched {
  return launchProgram(PROGRAM, args, options);
}

/** `launch` for another build of the program. */
export function launchProgram(
  file: string,
  args: readonly string[],
  { user, under = [] }: LaunchOptions = {},
): Launched {
  const env = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => name !== 'DATABASE_URL' && !name.startsWith('SANDKEEP_')),
  );
  const [program, ...rest] = [...under, process.execPath, file, ...args];
  const child = spawn(program!, rest, { ...user, env, cwd: '/', stdio: ['ignore', 'pipe', 'pipe'] });
  let [out, err] = ['', ''];
  child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (err += chunk.toString()));
  const exited = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve({ code, signal }));
  });
  return { process: child, pid: child.pid!, out: () => out, err: () => err, exited };
}

export function launchServe(dataDir: string, options?: LaunchOptions): Launched {
  const fixed = ['--json', '--port', '0', '--runtime', 'simulated', '--log-level', 'warn'];
  return launch(['serve', ...fixed, '--preview-host', 'none', '--data-dir', dataDir], options);
}

/** Starts a service and waits until it is ready. */
export async function serve(dataDir: string, options?: LaunchOptions): Promise<Served> {
  return ready(launchServe(dataDir, options), dataDir);
}

/** A data directory after a clean stop, for tests to copy: making a cluster takes ten times as long. */
export async function makeUsed(): Promise<{ used: string; key: string }> {
  const used = join(makeDatabaseFolder(), 'data');
  const service = await serve(used);
  if ((await stop(service)) !== 0) throw new Error(service.err());
  return { used, key: service.firstKey! };
}

export async function ready(starting: Launched, dataDir: string): Promise<Served> {
  await until(
    () => `the service is ready:\n${starting.err()}`,
    () => {
      if (starting.process.exitCode !== null) throw new Error(`serve ended:\n${starting.err()}`);
      return starting.out().includes('\n');
    },
    START_TIMEOUT_MS,
  );
  const line = JSON.parse(starting.out()) as { address: string; first_key?: { key: string } };
  return { ...starting, dataDir, url: line.address, firstKey: line.first_key?.key };
}

/** Stops a service cleanly; returns its exit code. */
export async function stop(service: Launched): Promise<number | null> {
  kill('SIGTERM', service.pid);
  return (await service.exited).code;
}

export function kill(signal: NodeJS.Signals, ...pids: number[]): void {
  for (const pid of pids) {
    try {
      process.kill(pid, signal);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }
}

interface Found {
  pid: number;
  /** The program's name: `postgres`, `sh`, `node`, ... */
  name: string;
  arguments: string[];
}

/** Processes that work below the folder or name it on their command line, without zombies. */
function processesOn(folder: string): Found[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .map((name) => look(Number(name)))
    .filter((found) => found !== undefined)
    .filter(({ cwd, arguments: all }) => [cwd, ...all].some((text) => text.includes(folder)));
}

/** The kernel's names for a Node process: since Node 24 its main thread has its own name. */
const NODE: ReadonlySet<string> = new Set(['node', 'MainThread']);

/** The processes of the database in a data directory: the guarding shells, the postmaster and its children. */
export function databaseOf(dataDir: string): {
  guards: number[];
  postmaster: number | undefined;
  all: number[];
} {
  const found = processesOn(dataDir).filter(({ name }) => !NODE.has(name));
  const pidsOf = (list: Found[]) => list.map(({ pid }) => pid);
  return {
    guards: pidsOf(found.filter(({ name }) => name === 'sh')),
    postmaster: pidsOf(found.filter((one) => one.name === 'postgres' && one.arguments.includes('-D')))[0],
    all: pidsOf(found),
  };
}

/** Waits until the service has started the guard, and returns before PostgreSQL is up. */
export async function untilGuarded(service: Launched): Promise<void> {
  const path = `/proc/${service.pid}/task/${service.pid}/children`;
  const isGuard = (child: string) => look(Number(child))?.name === 'sh';
  await until('it has a guard', () => readFileSync(path, 'utf8').split(' ').some(isGuard), PATIENCE_MS, 1);
}

/** Waits until no process of the database is left. */
export async function untilStopped(dataDir: string): Promise<void> {
  await until('the database has stopped', () => databaseOf(dataDir).all.length === 0);
}

function look(pid: number): (Found & { cwd: string }) | undefined {
  try {
    const name = readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
    const line = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
    return { pid, name, arguments: line.split('\0'), cwd: readlinkSync(`/proc/${pid}/cwd`) };
  } catch {
    return undefined;
  }
}

/** The TCP ports on which these processes listen. */
export function tcpPortsOf(pids: readonly number[]): number[] {
  const own = new Set(pids.flatMap(socketsOf));
  const LISTEN = '0A';
  return ['/proc/net/tcp', '/proc/net/tcp6']
    .filter((path) => existsSync(path))
    .flatMap((path) => readFileSync(path, 'utf8').trim().split('\n').slice(1))
    .map((line) => line.trim().split(/\s+/))
    .filter((columns) => columns[3] === LISTEN && own.has(columns[9]!))
    .map((columns) => parseInt(columns[1]!.split(':')[1]!, 16));
}

function socketsOf(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1] ?? [];
    } catch {
      return [];
    }
  });
}

/** In milliseconds; covers a busy machine. */
const PATIENCE_MS = 400_000;
const LEAST_DELAY_MS = 10;

/** Throws after at least `timeoutMs`. Default of `everyMs`: longer and longer, for what remains so. */
export async function until(
  what: string | (() => string),
  holds: () => boolean | Promise<boolean>,
  timeoutMs = PATIENCE_MS,
  everyMs?: number,
): Promise<void> {
  const begun = Date.now();
  const deadline = begun + Math.max(timeoutMs, PATIENCE_MS);
  while (!(await holds())) {
    if (Date.now() > deadline) {
      throw new Error(`not in time: ${typeof what === 'string' ? what : what()}`);
    }
    await sleep(everyMs ?? pollDelay(Date.now() - begun, LEAST_DELAY_MS));
  }
}

interface Answer {
  status: number;
  body: unknown;
}

interface RequestOptions {
  key?: string;
  body?: unknown;
  /** Keeps the connection open after the answer, as clients do. */
  keepAlive?: boolean;
}

/** Sends a request, and rejects when the service is killed meanwhile. */
export async function call(
  { url }: Served,
  method: string,
  path: string,
  { key, body, keepAlive = false }: RequestOptions = {},
): Promise<Answer> {
  const response = await fetch(`${url}${path}`, {
    method,
    headers: {
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(keepAlive ? {} : { connection: 'close' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: response.status, body: await response.json() };
}

export async function isReady(service: Served): Promise<boolean> {
  return (await call(service, 'GET', '/readyz')).status === 200;
}

/** Returns the status of the answer. */
export async function createVolume(service: Served, key: string, name: string): Promise<number> {
  return (await call(service, 'POST', '/v1/volumes', { key, body: { name } })).status;
}

export async function volumeNames(service: Served, key: string): Promise<string[]> {
  const { body } = await call(service, 'GET', '/v1/volumes', { key });
  return (body as { name: string }[]).map(({ name }) => name);
}

/** Creates volumes over several concurrent connections until it is stopped or the service is gone. */
export function writeVolumes(service: Served, key: string, connections: number) {
  const acknowledged: string[] = [];
  const refused: number[] = [];
  const stopping = new AbortController();
  async function write(connection: number): Promise<void> {
    for (let count = 0; !stopping.signal.aborted; count += 1) {
      const name = `volume-${connection}-${count}`;
      const status = await createVolume(service, key, name).catch(() => undefined);
      if (status === undefined) return;
      if (status === 200) acknowledged.push(name);
      else {
        refused.push(status);
        await sleep(20);
      }
    }
  }
  const ended = Promise.all(Array.from({ length: connections }, (_, index) => write(index)));
  return {
    /** The names of created volumes. */
    acknowledged,
    /** The statuses of the other requests. */
    refused,
    stop: () => stopping.abort(),
    ended: ended.then(() => acknowledged),
  };
}

/** A session beside those of the service. */
export async function inDatabase<T>(dataDir: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ host: join(dataDir, 'run'), user: 'sandkeep', database: 'sandkeep' });
  // The database may shut down first; the query in progress then fails by itself.
  client.on('error', () => undefined);
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/** A process that tries on request to own a data directory, and keeps it. */
interface Contender {
  process: ChildProcess;
  take(): Promise<boolean>;
}

export async function contend(dataDir: string): Promise<Contender> {
  const modules = join(PACKAGE_ROOT, 'dist', 'src', 'db', 'embedded');
  const code = `
    import { openDataDirectory } from '${modules}/directory.js';
    import { takeOwnership } from '${modules}/ownership.js';
    const directory = openDataDirectory('${dataDir}');
    process.on('message', async () => {
      process.send('release' in (await takeOwnership(directory, 'serve')));
    });
    process.send('ready');`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', code], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  const answer = async () => {
    const [message] = (await once(child, 'message', {
      signal: AbortSignal.timeout(PATIENCE_MS),
    })) as unknown[];
    return message;
  };
  await answer();
  return {
    process: child,
    async take() {
      child.send('take');
      return (await answer()) === true;
    },
  };
}

/** A hash of every entry in a folder: name, mode, owner, time of the last change and content. */
export function fingerprint(folder: string): string {
  const hash = createHash('sha256');
  for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' }).toSorted()) {
    const stat = lstatSync(join(folder, name));
    hash.update(JSON.stringify([name, stat.mode, stat.uid, stat.gid, stat.mtimeMs]));
    if (stat.isFile()) hash.update(readFileSync(join(folder, name)));
  }
  return hash.digest('hex');
}
