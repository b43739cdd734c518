import { longEventBytes } from '../../audit/events/long-events.js';
import { recordEvent } from '../../audit/events/record.js';
import type { EventActor } from '../../audit/events/schema.js';
import type { Context } from '../../context.js';
import { inTransaction, withSlowCommits, type Transaction } from '../../db/transaction.js';
import type { Instant } from '../../lib/instant.js';
import { toStorable } from '../../lib/storable-text.js';
import { newId } from '../../lib/uuid.js';
import {
  deleteSession,
  insertSession,
  recordsCommandLines,
  type SessionDetails,
  type SessionRow,
} from './queries.js';
import type { OpenSessions } from './open-sessions.js';

const MAX_PROGRAM = 200;
const MAX_COMMAND_LINE = 4_096;

/** A session in the audit trail. */
export interface SessionRecord {
  /** Aborts when a caller has asked for the end of this session. */
  readonly ended: AbortSignal;
  received(bytes: number): void;
  sent(bytes: number): void;
  /** Counts a change to the files of the sandbox. */
  written(): void;
  /** `oomKilled`: null or missing, unknown. */
  end(outcome: { exitCode: number | null; reason: string; oomKilled?: boolean | null }): void;
}

export interface SessionSubject {
  orgId: string;
  actor: EventActor;
  sandboxId: string;
  name: string;
}

type Writer = Pick<Context, 'pool' | 'now' | 'touches' | 'longEvents'>;

interface VisitHooks {
  /** Counts a further session against the rate of the key. */
  countMore: () => void;
  admitted: <T>(work: (end: () => void) => Promise<T>) => Promise<T>;
  /** Called when another process has ended a session in the audit trail. */
  onLost: () => void;
  /** Called when a caller has asked for the end of the session of the files. */
  onFilesEnded: () => void;
}

/** Writes the beginning and the end of the sessions of one connection to the audit trail. Content is never written. */
export class SessionRecorder {
  private isFirst = true;
  private filesRecord: Promise<SessionRecord> | undefined;

  constructor(
    private readonly ctx: Writer,
    private readonly subject: SessionSubject,
    private readonly sessions: OpenSessions,
    private readonly visit: VisitHooks,
  ) {}

  /** Counts as activity of the sandbox. */
  touch(): void {
    this.ctx.touches.touch(this.subject.sandboxId);
  }

  /** Resolves when the beginning is in the audit trail. A session that cannot be recorded does not begin. */
  async open({
    kind,
    user,
    args,
  }: Pick<SessionDetails, 'kind' | 'user'> & { args: readonly string[] }): Promise<SessionRecord> {
    // The request itself stands for the first session.
    if (!this.isFirst) this.visit.countMore();
    this.isFirst = false;
    const { orgId, actor, sandboxId, name } = this.subject;
    const [program] = args;
    const id = newId();
    const summary: SessionDetails = {
      session_id: id,
      sandbox_id: sandboxId,
      name,
      kind,
      user: user?.slice(0, MAX_PROGRAM) ?? null,
      program: program?.slice(0, MAX_PROGRAM) ?? null,
      argument_count: Math.max(args.length - 1, 0),
    };
    const at = this.ctx.now();
    this.touch();
    let longBytes = 0;
    const record = async (tx: Transaction) => {
      const isShown = args.length > 0 && (await recordsCommandLines(tx, orgId));
      const details = isShown ? { ...summary, ...commandLine(args) } : summary;
      await insertSession(tx, { org_id: orgId, id, actor, details, opened_at: at });
      const type = 'sandbox_session_opened';
      await recordEvent(tx, { orgId, type, actor, resourceId: sandboxId, at, payload: details });
      longBytes = longEventBytes(tx);
      this.ctx.longEvents.check(orgId, longBytes);
      return details;
    };
    const recorded = this.visit.admitted((end) => inTransaction(withSlowCommits(this.ctx.pool, end), record));
    const ended = new AbortController();
    const session = { orgId, onLost: this.visit.onLost, onEndRequest: () => ended.abort() };
    const details = await this.sessions.begin(id, session, recorded);
    this.ctx.longEvents.add(orgId, longBytes);
    return this.record({ org_id: orgId, id, actor, details, opened_at: at }, ended.signal);
  }

  /** The file operations of a connection are one session, from the first one on. */
  async files(): Promise<SessionRecord> {
    this.touch();
    this.filesRecord ??= this.openFiles().catch((error: unknown) => {
      // The next operation tries again.
      this.filesRecord = undefined;
      throw error;
    });
    return this.filesRecord;
  }

  /** Open files and the operations on them belong to the whole connection, which ends with their session. */
  private async openFiles(): Promise<SessionRecord> {
    const record = await this.open({ kind: 'files', user: null, args: [] });
    record.ended.addEventListener('abort', () => this.visit.onFilesEnded(), { once: true });
    return record;
  }

  /** Ends the session of the files. */
  close(reason: string): void {
    void this.filesRecord?.then(
      (record) => record.end({ exitCode: null, reason }),
      () => undefined,
    );
  }

  private record(row: Omit<SessionRow, 'seen_at'>, ended: AbortSignal): SessionRecord {
    const begun = performance.now();
    let [received, sent, writes, isOver] = [0, 0, 0, false];
    return {
      ended,
      received: (bytes) => {
        received += bytes;
        this.touch();
      },
      sent: (bytes) => {
        sent += bytes;
        this.touch();
      },
      written: () => (writes += 1),
      end: ({ exitCode, reason, oomKilled }) => {
        if (isOver) return;
        isOver = true;
        this.touch();
        const payload: SessionEnd = {
          reason,
          exit_code: exitCode,
          duration_ms: Math.round(performance.now() - begun),
          bytes_in: received,
          bytes_out: sent,
          file_writes: writes,
        };
        if (exitCode !== null) payload.oom_killed = oomKilled ?? null;
        const at = this.ctx.now();
        this.sessions.end(row.id, () =>
          inTransaction(this.ctx.pool, async (tx) => {
            if (await deleteSession(tx, row.org_id, row.id)) await recordEnd(tx, row, payload, at);
          }),
        );
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
  oom_killed?: boolean | null;
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
