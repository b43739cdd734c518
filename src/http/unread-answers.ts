import type { FastifyReply } from 'fastify';
import type { Socket } from 'node:net';
import { Slots } from '../fairness/slots.js';
import { carrierOf } from './client-address.js';
import { resetConnection } from './reset-connection.js';
import { whenOver } from './when-over.js';

const MIB = 1024 ** 2;

export interface UnreadLimits {
  /** The bytes of answers that the clients of one owner have not taken yet. */
  each: number;
  total: number;
  /** A client that takes nothing for so long is cut off. */
  stallMs: number;
  /** The same while its owner, or all of them, have too many bytes. */
  fullStallMs: number;
  sweepMs: number;
}

export const UNREAD: UnreadLimits = {
  each: 128 * MIB,
  total: 512 * MIB,
  stallMs: 30_000,
  fullStallMs: 1_000,
  sweepMs: 500,
};
/** The operating system takes shorter ones at once, also of a client that reads nothing. */
const SHORT_BYTES = 16 * 1024;

interface Answer {
  owner: string;
  socket: Socket;
  bytes: number;
  taken: number | undefined;
  takenAt: number;
}

/**
 * Bounds the answers that wait in memory for their clients. Such an answer holds up to some MiB and costs its key
 * nothing while it waits, and a client may never read it. Answers that are streams wait for their clients by
 * themselves.
 */
export class UnreadAnswers {
  private readonly answers = new Set<Answer>();
  private readonly memory: Slots;
  private timer: NodeJS.Timeout | undefined;
  /**
   * The time in milliseconds, without what this process was held up. A process that stands still for a second passes
   * on no bytes, for which no client is cut off.
   */
  private clock = 0;
  private sweptAt = 0;

  constructor(private readonly limits: UnreadLimits) {
    this.memory = new Slots({ total: limits.total, each: limits.each });
  }

  /** Counts the answer until the client has taken it. */
  hold(owner: string, reply: FastifyReply, bytes: number): void {
    if (bytes <= SHORT_BYTES) return;
    const answer = { owner, socket: reply.request.raw.socket, bytes, taken: 0, takenAt: this.clock };
    this.answers.add(answer);
    this.memory.add(owner, bytes);
    this.begin();
    whenOver(reply, () => this.release(answer));
  }

  private begin(): void {
    if (this.timer !== undefined) return;
    this.sweptAt = performance.now();
    this.timer = setInterval(() => this.sweep(), this.limits.sweepMs).unref();
  }

  private release(answer: Answer): void {
    if (this.answers.delete(answer)) this.memory.add(answer.owner, -answer.bytes);
  }

  private sweep(): void {
    const { stallMs, fullStallMs, sweepMs } = this.limits;
    const at = performance.now();
    this.clock += Math.min(at - this.sweptAt, 2 * sweepMs);
    this.sweptAt = at;
    const now = this.clock;
    for (const answer of this.answers) {
      const taken = takenBytes(answer.socket);
      if (taken === undefined || taken !== answer.taken) Object.assign(answer, { taken, takenAt: now });
    }
    const stalled = [...this.answers]
      .filter(({ takenAt }) => now - takenAt >= fullStallMs)
      .toSorted((a, b) => a.takenAt - b.takenAt);
    for (const answer of stalled) {
      const { owner, socket, takenAt } = answer;
      if (now - takenAt < stallMs && !this.memory.isOver(owner)) continue;
      // At once, so that no more connections than necessary are cut off.
      this.release(answer);
      resetConnection(socket);
    }
    if (this.answers.size > 0) return;
    clearInterval(this.timer);
    this.timer = undefined;
  }
}

/**
 * The bytes that the operating system has accepted. `bytesWritten` of a socket counts a long write as a whole when it
 * begins. Node's own time-outs of sockets use the same field of the handle, which has no public name.
 */
function takenBytes(socket: Socket): number | undefined {
  const { _handle: handle } = carrierOf(socket) as {
    _handle?: { bytesWritten?: number; writeQueueSize?: number } | null;
  };
  if (handle?.bytesWritten === undefined || handle.writeQueueSize === undefined) return undefined;
  return handle.bytesWritten - handle.writeQueueSize;
}
