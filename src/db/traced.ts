import type pg from 'pg';
import type { Span } from '../lib/tracing.js';
import { sqlState, type Pool, type Sql, type Statement } from './pool.js';
import { POSTGRESQL } from './transaction.js';

export async function inReadSpan<T>(parent: Span | undefined, read: () => Promise<T>): Promise<T> {
  if (!parent) return read();
  const span = parent.child('postgresql read', 'client', POSTGRESQL);
  try {
    const result = await read();
    span.end();
    return result;
  } catch (error) {
    span.end(sqlState(error) ?? 'unavailable');
    throw error;
  }
}

/** Makes a span of each statement. The text of a statement is no part of it. */
export class TracedSql implements Sql {
  constructor(
    private readonly sql: Sql,
    readonly span: Span,
  ) {}

  async query<Row extends pg.QueryResultRow>(statement: string | Statement, values?: readonly unknown[]) {
    return inReadSpan(this.span, () => this.sql.query<Row>(statement, values));
  }
}

/** `inTransaction` makes the spans of transactions. */
export class TracedPool extends TracedSql implements Pool {
  constructor(
    private readonly pool: Pool,
    span: Span,
  ) {
    super(pool, span);
  }

  get eventMarker(): Pool['eventMarker'] {
    return this.pool.eventMarker;
  }

  onSlowCommit(): void {
    this.pool.onSlowCommit?.();
  }

  async connect(): Promise<pg.PoolClient> {
    return this.pool.connect();
  }
}
