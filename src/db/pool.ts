import pg from 'pg';
import { instantFromPostgres } from '../lib/instant.js';

/** Anything that runs SQL: the pool (each statement by itself) or a transaction. */
export interface Sql {
  query<Row extends pg.QueryResultRow = pg.QueryResultRow>(
    statement: string | Statement,
    values?: readonly unknown[],
  ): Promise<{ rows: Row[]; rowCount: number | null }>;
}

/** SQL with its values; see `prepared`. */
export interface Statement {
  /** With one, each connection parses and plans it once. */
  name?: string;
  text: string;
  values: unknown[];
  /** Rows as lists of values, in the order of the columns. */
  rowMode?: 'array';
}

/**
 * Loads the function that marks audit events. The marks tell the events of the service from rows inserted by others. Undefined: there
 * are no event keys.
 */
export type EventMarker = () => Promise<((leaf: Buffer) => Buffer) | undefined>;

/** Connections to be shared: runs statements, and lends one for a transaction. */
export interface Pool extends Sql {
  /** Each transaction of the pool carries it. Undefined: the pool writes events without a mark. */
  eventMarker: EventMarker | undefined;
  connect(): Promise<pg.PoolClient>;
}

/** A pool of the driver. */
export type PgPool = pg.Pool & Pick<Pool, 'eventMarker'>;

/** Where the database is: a URL, or the socket folder of the embedded one. */
export type Address = { url: string } | { socket: string };

const STATEMENT_TIMEOUT_MS = 30_000;

/**
 * What every session runs with, so that an embedded and an external server answer alike. `jit` costs an external
 * server up to 18 times the time of a usage query; UTC is what the instants of this service are read in.
 */
const SESSION = [
  'timezone=UTC',
  'jit=off',
  `statement_timeout=${STATEMENT_TIMEOUT_MS}`,
  'idle_in_transaction_session_timeout=60000',
  'datestyle=ISO',
  'extra_float_digits=1',
];

/** `options`: settings of the session beside those that every one has, as for the command line of the server. */
export function connectionConfig(address: Address, options = ''): pg.ClientConfig {
  return {
    ...('url' in address
      ? { connectionString: address.url }
      : { host: address.socket, user: 'sandkeep', database: 'sandkeep' }),
    application_name: 'sandkeep',
    options: `${asOptions(SESSION)} ${options}`,
    connectionTimeoutMillis: 10_000,
    types,
  };
}

/** Settings as the command line of the server has them. */
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

/** `options`: as of a connection. */
export function poolConfig(address: Address, options = ''): pg.PoolConfig {
  return { ...connectionConfig(address, options), max: 16, allowExitOnIdle: true };
}

export function poolOf(pool: pg.Pool, onError: (error: Error) => void): pg.Pool {
  // An idle connection that breaks is replaced on next use; without a listener it would end the process.
  pool.on('error', onError);
  // One that breaks in use fails the statement under way or the next, and would end the process as well.
  pool.on('connect', (client) => client.on('error', () => undefined));
  return pool;
}

/** A session of its own. When its connection breaks, the statement under way fails, or the next. */
export async function connectAlone(address: Address, overrides: pg.ClientConfig = {}): Promise<pg.Client> {
  const client = new pg.Client({ ...connectionConfig(address), ...overrides });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

const { INT8, TIMESTAMPTZ } = pg.types.builtins;

type TypeId = Parameters<typeof pg.types.getTypeParser>[0];

/** Reads what JavaScript can hold exactly; everything else stays text. */
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
/** A statement that took too long, or that somebody ended. */
export const CANCELED = '57014';

/** The codes by which PostgreSQL says why, read off an error of unknown kind. */
export function sqlState(error: unknown): string | undefined {
  return error instanceof pg.DatabaseError ? error.code : undefined;
}

/** The name of the constraint that refused a row, if one did. */
export function violatedConstraint(error: unknown): string | undefined {
  return error instanceof pg.DatabaseError && error.code?.startsWith('23') ? error.constraint : undefined;
}

/** A connection was lost, or given up, with a statement under way. */
export class ConnectionLost extends Error {}

/** There is more to do than the database keeps up with. */
export class Overloaded extends Error {}

/** The database is away or shutting down, as opposed to having refused a statement. */
export function isUnreachable(error: unknown): boolean {
  if (error instanceof ConnectionLost) return true;
  const state = sqlState(error);
  if (state !== undefined) return /^(08|57P0[123]|53300)/.test(state);
  const { code, message, syscall } = error as NodeJS.ErrnoException;
  // A socket's errors name what was tried on it; a file that is missing, or a client that hung up, is another matter.
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
