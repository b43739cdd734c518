import type { Context } from '../context.js';
import type { Sql } from '../db/pool.js';
import { addMillis, type Instant } from '../lib/instant.js';
import { startLoop, type Loop } from '../lib/loop.js';
import type { MemberSessionRow } from './member-session.js';

const MINUTE_MS = 60_000;
/** A session of a member ends when it was not used for so long. */
export const SESSION_IDLE_MS = 2 * 60 * MINUTE_MS;

interface Use {
  orgId: string;
  hash: Buffer;
  idleAt: Instant;
}

/** Moves the idle end of used sessions in the background, at most once a minute for each. */
export class SessionUses {
  private readonly pending = new Map<string, Use>();
  private readonly loop: Loop;

  constructor(private readonly ctx: Pick<Context, 'pool' | 'settings' | 'log'>) {
    this.loop = startLoop(() => this.write(), {
      intervalMs: ctx.settings.keyUseWriteMs,
      onError: (error) => ctx.log.warn({ err: error }, 'writing the use of sessions failed'),
    });
  }

  recordUse({ org_id: orgId, session_hash: hash, idle_at }: MemberSessionRow, at: Instant): void {
    if (idle_at > addMillis(at, SESSION_IDLE_MS - MINUTE_MS)) return;
    this.pending.set(hash.toString('base64'), { orgId, hash, idleAt: addMillis(at, SESSION_IDLE_MS) });
  }

  async close(): Promise<void> {
    await this.loop.stop();
    await this.write();
  }

  /** A use that is lost to a failure is recorded again by the next request. */
  private async write(): Promise<void> {
    const uses = [...this.pending.values()];
    this.pending.clear();
    if (uses.length > 0) await setIdleEnds(this.ctx.pool, uses);
  }
}

async function setIdleEnds(sql: Sql, uses: readonly Use[]): Promise<void> {
  await sql.query(
    `update console_sessions s set idle_at = u.idle_at
     from unnest($1::uuid[], $2::bytea[], $3::timestamptz[]) as u (org_id, hash, idle_at)
     where s.org_id = u.org_id and s.hash = u.hash and s.idle_at < u.idle_at`,
    [uses.map(({ orgId }) => orgId), uses.map(({ hash }) => hash), uses.map(({ idleAt }) => idleAt)],
  );
}
