import pg from 'pg';
import type { Span } from '../lib/tracing.js';
import { instantFromPostgres } from '../lib/instant.js';
import { clusterOf, NoPrimary, type Cluster } from './external/cluster.js';
import { PrimaryClient, type PrimaryConfig } from './external/primary-client.js';

/** Runs SQL: a pool, which may use another connection for each statement, or a transaction. */
export interface Sql {
  query<Row extends pg.QueryResultRow = pg.QueryResultRow>(
    statement: string | Statement,
    values?: readonly unknown[],
  ): Promise<{ rows: Row[]; rowCount: number | null }>;
}

export interface Statement {
  /** A connection parses and plans a named statement once. */
  name?: string;
  text: string;
  values: unknown[];
  rowMode?: 'array';
}

/**
 * Loads the function that marks audit events. The marks tell the events of the service from rows inserted by others.
 * Undefined: there are no event keys.
 */
export type EventMarker = () => Promise<((leaf: Buffer) => Buffer) | undefined>;

export interface Pool extends Sql {
  /** Each transaction of the pool carries it. Undefined: the pool writes events without a mark. */
  eventMarker: EventMarker | undefined;
  /** Transactions of the pool belong to it. */
  span?: Span;
  onSlowCommit?: () => void;
  connect(): Promise<pg.PoolClient>;
}

export type PgPool = pg.Pool & Pick<Pool, 'eventMarker'>;

export type Address = { url: string } | { socket: string };

const STATEMENT_TIMEOUT_MS = 30_000;
export const CONNECTIONS_OF_POOL = 16;

/**
 * The same results from an embedded and an external server. `instantFromPostgres` reads UTC only. With `jit` a usage
 * query takes up to 18 times longer; `PGOPTIONS="-c jit=on" npm run bench -- usage` prints it.
 */
const SESSION = [
  // Other schemas of the path could shadow tables and functions.
  'search_path=public',
  'timezone=UTC',
  'jit=off',
  `statement_timeout=${STATEMENT_TIMEOUT_MS}`,
  'idle_in_transaction_session_timeout=60000',
  'datestyle=ISO',
  'extra_float_digits=1',
  // A server frees the locks of a client that the network lost, in a minute and not in hours.
  'tcp_keepalives_idle=30',
  'tcp_keepalives_interval=10',
  'tcp_keepalives_count=3',
  'tcp_user_timeout=60000',
];

export interface ConnectionConfig extends pg.ClientConfig {
  /** The servers of an external database. */
  cluster?: Cluster;
}

export function connectionConfig(address: Address, options = ''): ConnectionConfig {
  return {
    ...('url' in address
      ? externalServer(address.url)
      : { host: address.socket, user: 'sandkeep', database: 'sandkeep' }),
    application_name: 'sandkeep',
    options: `${asOptions(SESSION)} ${options}`,
    connectionTimeoutMillis: 10_000,
    types,
  };
}

function externalServer(url: string): ConnectionConfig {
  const cluster = clusterOf(url);
  return { cluster, connectionString: cluster.url };
}

/** Every connection of the service is made here, or by a pool of `poolConfig`. */
export function makeClient(config: ConnectionConfig): pg.Client {
  return isExternal(config) ? new PrimaryClient(config) : new pg.Client(config);
}

function isExternal(config: ConnectionConfig): config is PrimaryConfig {
  return config.cluster !== undefined;
}

export function asOptions(settings: readonly string[]): string {
  return settings.map((setting) => `-c ${setting}`).join(' ');
}

export function openPool(
  address: Address,
  onError: (error: Error) => void,
  eventMarker?: EventMarker,
): PgPool {
  return Object.assign(poolOf(new pg.Pool(poolConfig(address)), onError), { eventMarker });
}

export function poolConfig(address: Address, options = ''): pg.PoolConfig {
  const config = connectionConfig(address, options);
  const Client = isExternal(config) ? PrimaryClient : pg.Client;
  return { ...config, Client, max: CONNECTIONS_OF_POOL, allowExitOnIdle: true };
}

export function poolOf(pool: pg.Pool, onError: (error: Error) => void): pg.Pool {
  // Without a listener the error of an idle connection ends the process.
  pool.on('error', onError);
  // The statement in flight, or the next one, fails with the error.
  pool.on('connect', (client) => client.on('error', () => undefined));
  return pool;
}

export async function connectAlone(address: Address, overrides: pg.ClientConfig = {}): Promise<pg.Client> {
  const client = makeClient({ ...connectionConfig(address), ...overrides });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

const { INT8, TIMESTAMPTZ } = pg.types.builtins;

type TypeId = Parameters<typeof pg.types.getTypeParser>[0];

const types: pg.CustomTypesConfig = {
  getTypeParser: ((oid: TypeId, format?: 'text' | 'binary') => {
    if (oid === TIMESTAMPTZ) return instantFromPostgres;
    if (oid === INT8) return safeInteger;
    return pg.types.getTypeParser(oid, format);
  }) as typeof pg.types.getTypeParser,
};

function safeInteger(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new Error(`bigint out of the exact range of a number: ${text}`);
  return value;
}

export const DEADLOCK = '40P01';
/** A statement time-out, or a cancelled statement. */
export const CANCELED = '57014';

/** PostgreSQL found no space on its disk. */
export function isDiskFull(error: unknown): boolean {
  return sqlState(error) === '53100';
}

export function sqlState(error: unknown): string | undefined {
  return error instanceof pg.DatabaseError ? error.code : undefined;
}

export function violatedConstraint(error: unknown): string | undefined {
  return error instanceof pg.DatabaseError && error.code?.startsWith('23') ? error.constraint : undefined;
}

export class ConnectionLost extends Error {}

/** A commit that is not answered in time. */
export class Unconfirmed extends ConnectionLost {}

/** More work than the database completes in time. */
export class Overloaded extends Error {}

/** True when the database gave up on a statement that may succeed later: it took too long, or gave way to others. */
export function gaveUp(error: unknown): boolean {
  return [CANCELED, DEADLOCK, '40001', '55P03', '25P03', '25P04'].includes(sqlState(error) ?? '');
}

const UNREACHABLE = /^(08|57P0[123]|53300|58)/;

/** PostgreSQL reports a read-only file system with the code for missing rights. Its source file tells them apart. */
function isStorageRefused({ code, file = '' }: pg.DatabaseError): boolean {
  return code === '42501' && /^(md|fd|slru|xlog|relmapper)\.c$/.test(file);
}

/** True when the database is unavailable; false when it refused a statement. */
export function isUnreachable(error: unknown): boolean {
  if (error instanceof ConnectionLost || error instanceof NoPrimary) return true;
  if (error instanceof pg.DatabaseError) return UNREACHABLE.test(error.code ?? '') || isStorageRefused(error);
  const { code, message, syscall } = error as NodeJS.ErrnoException;
  // The errors of sockets name a system call.
  const socket = ['connect', 'read', 'write', 'getaddrinfo'].includes(syscall ?? '');
  const codes = [
    'ECONNREFUSED',
    'ENOENT',
    'ENOTFOUND',
    'EAI_AGAIN',
    'ECONNRESET',
    'EPIPE',
    'ETIMEDOUT',
    'EHOSTUNREACH',
  ];
  return (
    (socket && codes.includes(code ?? '')) ||
    /^(Connection terminated|timeout expired$|timeout exceeded when trying to connect|Client .* is not queryable)/.test(
      message ?? '',
    )
  );
}
