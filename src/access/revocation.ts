import type { FastifyReply } from 'fastify';
import type { Context } from '../context.js';

const LOOK_EVERY_MS = 500;

export interface OpenAnswers {
  /** Watches an answer until it is complete or its client has left. `isOpened`: whether its key still opens it. */
  watch(reply: FastifyReply, isOpened: () => Promise<boolean>): void;
  /** To be called when an answer is complete. */
  done(reply: FastifyReply): void;
  close(): void;
}

/**
 * Answers that take long, such as followed logs, end when their key does: those under way are looked at twice a second, all at
 * once, and cut off when it no longer opens them. An answer that is done before costs nothing but its place in a set.
 */
export function watchOpenAnswers({ log }: Pick<Context, 'log'>): OpenAnswers {
  const open = new Map<FastifyReply, () => Promise<boolean>>();
  /** Those whose last look is still under way. One that hangs holds up no other. */
  const looking = new Set<FastifyReply>();
  let failure: { err: unknown } | undefined;

  async function look(reply: FastifyReply, isOpened: () => Promise<boolean>): Promise<void> {
    if (looking.has(reply)) return;
    looking.add(reply);
    try {
      if (!(await isOpened())) reply.raw.destroy();
    } catch (error) {
      // Without the database nobody can be told to be refused; what is served from it ends by itself.
      failure = { err: error };
    } finally {
      looking.delete(reply);
    }
  }

  const timer = setInterval(() => {
    // As a rule all fail alike: one line will do.
    if (failure) log.warn(failure, 'the keys of open answers could not be looked at');
    failure = undefined;
    for (const [reply, isOpened] of open) {
      // Its client left. Of answers that wait for others on the same connection only the socket shows it.
      if (reply.raw.destroyed || reply.request.raw.socket.destroyed) open.delete(reply);
      else void look(reply, isOpened);
    }
  }, LOOK_EVERY_MS);
  return {
    watch(reply, isOpened) {
      open.set(reply, isOpened);
    },
    done: (reply) => void open.delete(reply),
    close: () => clearInterval(timer),
  };
}
