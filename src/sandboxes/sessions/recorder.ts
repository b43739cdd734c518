import { v7 as uuidv7 } from 'uuid';
import { recordEvent } from '../../audit/events/record.js';
import type { EventActor } from '../../audit/events/schema.js';
import type { Context } from '../../context.js';
import type { Sql } from '../../db/pool.js';
import { inTransaction } from '../../db/transaction.js';
import type { Instant } from '../../lib/instant.js';
import { startLoop, type Loop } from '../../lib/loop.js';
import { toStorable } from '../../lib/storable-text.js';
import {
  deleteSession,
  insertSession,
  recordsCommandLines,
  renewSessions,
  type SessionDetails,
  type SessionRow,
} from './queries.js';

/** A process renews its sessions so often, in milliseconds. */
const RENEW_MS = 15_000;
const MAX_PROGRAM = 200;
const MAX_COMMAND_LINE = 4_096;

/** A session in the audit trail. */
export interface SessionRecord {
  received(bytes: number): void;
  sent(bytes: number): void;
  /** Counts a change to the files of the sandbox. */
  written(): void;
  end(outcome: { exitCode: number | null; reason: string }): void;
}

export interface SessionSubject {
  orgId: string;
  actor: EventActor;
  sandboxId: string;
  name: string;
}

type Writer = Pick<Context, 'pool' | 'now' | 'log'>;

/** The sessions that this process serves. It renews their rows, so that another process does not take them for lost. */
export class OpenSessions {
  private readonly ids = new Set<string>();
  private readonly ends = new Set<Promise<void>>();
  private readonly loop: Loop;

  /** `pool`: shows every organization. */
  constructor({ pool, now, log }: { pool: Sql } & Pick<Context, 'now' | 'log'>) {
    this.loop = startLoop(
      async () => {
        if (this.ids.size > 0) await renewSessions(pool, [...this.ids], now());
      },
      {
        intervalMs: RENEW_MS,
        maxBackoffMs: RENEW_MS,
        onError: (error) => log.warn({ err: error }, 'open sessions could not be renewed'),
      },
    );
  }

  opened(id: string): void {
    this.ids.add(id);
  }

  /** `recorded`: settles when the end is in the audit trail. */
  ended(id: string, recorded: Promise<void>): void {
    this.ids.delete(id);
    this.ends.add(recorded);
    void recorded.finally(() => this.ends.delete(recorded));
  }

  async close(): Promise<void> {
    await this.loop.stop();
    await Promise.all(this.ends);
  }
}

/** Writes the beginning and the end of the sessions of one connection to the audit trail. Content is never written. */
export class SessionRecorder {
  private filesRecord: Promise<SessionRecord> | undefined;

  constructor(
    private readonly ctx: Writer,
    private readonly subject: SessionSubject,
    private readonly sessions: OpenSessions,
  ) {}

  /** Resolves when the beginning is in the audit trail. A session that cannot be recorded does not begin. */
  async open({
    kind,
    user,
    args,
  }: Pick<SessionDetails, 'kind' | 'user'> & { args: readonly string[] }): Promise<SessionRecord> {
    const { orgId, actor, sandboxId, name } = this.subject;
    const [program] = args;
    const id = uuidv7();
    const summary: SessionDetails = {
      ...{ session_id: id, sandbox_id: sandboxId, name, kind, user },
      program: program?.slice(0, MAX_PROGRAM) ?? null,
      argument_count: Math.max(args.length - 1, 0),
    };
    const at = this.ctx.now();
    const details = await inTransaction(this.ctx.pool, async (tx) => {
      const isShown = args.length > 0 && (await recordsCommandLines(tx, orgId));
      const details = isShown ? { ...summary, ...commandLine(args) } : summary;
      await insertSession(tx, { org_id: orgId, id, actor, details, opened_at: at });
      const type = 'sandbox_session_opened';
      await recordEvent(tx, { orgId, type, actor, resourceId: sandboxId, at, payload: details });
      return details;
    });
    this.sessions.opened(id);
    return this.record({ org_id: orgId, id, actor, details, opened_at: at });
  }

  /** The file operations of a connection are one session, from the first one on. */
  async files(): Promise<SessionRecord> {
    this.filesRecord ??= this.open({ kind: 'files', user: null, args: [] });
    return this.filesRecord;
  }

  /** Ends the session of the files. */
  close(reason: string): void {
    void this.filesRecord?.then(
      (record) => record.end({ exitCode: null, reason }),
      () => undefined,
    );
  }

  private record(row: Omit<SessionRow, 'seen_at'>): SessionRecord {
    const begun = performance.now();
    let [received, sent, writes, isOver] = [0, 0, 0, false];
    return {
      received: (bytes) => (received += bytes),
      sent: (bytes) => (sent += bytes),
      written: () => (writes += 1),
      end: ({ exitCode, reason }) => {
        if (isOver) return;
        isOver = true;
        const payload = {
          ...{ reason, exit_code: exitCode, duration_ms: Math.round(performance.now() - begun) },
          ...{ bytes_in: received, bytes_out: sent, file_writes: writes },
        };
        const recorded = inTransaction(this.ctx.pool, async (tx) => {
          if (await deleteSession(tx, row.org_id, row.id)) await recordEnd(tx, row, payload, this.ctx.now());
        }).catch((error: unknown) => {
          // The row stays: the job that ends lost sessions records the end.
          this.ctx.log.error({ err: error, sessionId: row.id }, 'the end of a session could not be recorded');
        });
        this.sessions.ended(row.id, recorded);
      },
    };
  }
}

/** Cut after so many characters, because a log of commands is no store for their input. */
function commandLine(args: readonly string[]): Pick<SessionDetails, 'command' | 'command_cut'> {
  let room = MAX_COMMAND_LINE;
  const command: string[] = [];
  for (const arg of args) {
    if (room <= 0) break;
    command.push(toStorable(arg.slice(0, room)));
    room -= arg.length + 1;
  }
  return { command, command_cut: room < -1 || command.length < args.length };
}

export interface SessionEnd {
  reason: string;
  exit_code: number | null;
  duration_ms: number;
  bytes_in: number | null;
  bytes_out: number | null;
  file_writes: number | null;
}

export async function recordEnd(
  tx: Parameters<typeof recordEvent>[0],
  { org_id: orgId, actor, details }: Omit<SessionRow, 'seen_at'>,
  end: SessionEnd,
  at: Instant,
): Promise<void> {
  const resourceId = details.sandbox_id;
  const payload = { ...details, ...end };
  await recordEvent(tx, { orgId, type: 'sandbox_session_ended', actor, resourceId, at, payload });
}
