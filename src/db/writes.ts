import type { Sql, Statement } from './pool.js';
import { prepared } from './prepared.js';

/**
 * Gathers statements that write and are asked for nothing, and sends them to the database as one: each becomes a `with` of it.
 * They see the store as it was before all of them, so none may need what another has written; constraints are checked, and
 * triggers run, when all are done. What begins with `select` (a call such as of `pg_notify`) comes last.
 *
 * What a statement costs is mostly the way there and back. A create under an idempotency key that is started took some twenty, and
 * takes five, of which two begin and commit: with what else there is now once for many, its CPU time went from 12.6 ms in Node and 19.3 in PostgreSQL to 4.4 and 5.2
 * (side by side on a busy machine).
 */
export class Writes implements Sql {
  private readonly parts: string[] = [];
  private readonly calls: string[] = [];
  private readonly values: unknown[] = [];

  constructor(readonly tx: Sql) {}

  query(
    statement: string | Statement,
    given: readonly unknown[] = [],
  ): Promise<{ rows: never[]; rowCount: null }> {
    const { text, values } = typeof statement === 'string' ? { text: statement, values: given } : statement;
    const before = this.values.length;
    const renumbered = text.replace(/\$(\d+)/g, (_, number: string) => `$${Number(number) + before}`);
    (/^\s*select\b/.test(text) ? this.calls : this.parts).push(renumbered);
    this.values.push(...values);
    return Promise.resolve({ rows: [], rowCount: null });
  }

  async send(): Promise<void> {
    const parts = this.parts.splice(0);
    const calls = this.calls.splice(0);
    const values = this.values.splice(0);
    const last = calls.length > 0 ? calls.join(' union all ') : parts.pop();
    if (last === undefined) return;
    const before = parts.map((part, index) => `w${index} as (${part})`).join(', ');
    await this.tx.query(prepared(before === '' ? last : `with ${before} ${last}`, values));
  }
}
