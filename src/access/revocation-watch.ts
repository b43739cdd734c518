import type { FastifyReply } from 'fastify';
import type { Context } from '../context.js';

const CHECK_INTERVAL_MS = 500;

export interface RevocationWatch {
  /** Cuts a response off when its key no longer authorizes it. */
  watch(reply: FastifyReply, isAuthorized: () => Promise<boolean>): void;
  /** To be called when a response is complete. */
  unwatch(reply: FastifyReply): void;
  close(): void;
}

const ends = new WeakMap<FastifyReply, () => void>();

/** Ends the response in this way when its key is revoked, instead of by a cut of its connection. */
export function onRevocation(reply: FastifyReply, end: () => void): void {
  ends.set(reply, end);
}

/**
 * Ends long responses, such as followed logs, together with their keys. A short response only costs an entry in a map.
 */
export function makeRevocationWatch({ log }: Pick<Context, 'log'>): RevocationWatch {
  const open = new Map<FastifyReply, () => Promise<boolean>>();
  /** The responses whose last check is still running. A check that hangs delays no other. */
  const checking = new Set<FastifyReply>();
  let failure: { err: unknown } | undefined;

  async function check(reply: FastifyReply, isAuthorized: () => Promise<boolean>): Promise<void> {
    if (checking.has(reply)) return;
    checking.add(reply);
    try {
      if (await isAuthorized()) return;
      const end = ends.get(reply) ?? (() => reply.raw.destroy());
      end();
    } catch (error) {
      // Without the database the state of a key is unknown. Responses that read the database end by themselves.
      failure = { err: error };
    } finally {
      checking.delete(reply);
    }
  }

  const timer = setInterval(() => {
    // One line for all failures of an interval: they usually have the same cause.
    if (failure) log.warn(failure, 'checking the keys of open responses failed');
    failure = undefined;
    for (const [reply, isAuthorized] of open) {
      // A response that queues behind others of its connection sees only the socket close.
      if (reply.raw.destroyed || reply.request.raw.socket.destroyed) open.delete(reply);
      else void check(reply, isAuthorized);
    }
  }, CHECK_INTERVAL_MS);
  return {
    watch(reply, isAuthorized) {
      open.set(reply, isAuthorized);
    },
    unwatch: (reply) => void open.delete(reply),
    close: () => clearInterval(timer),
  };
}
