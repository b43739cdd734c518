import type { FastifyReply } from 'fastify';
import type { Context } from '../context.js';
import { startLoop } from '../lib/loop.js';

const LOOK_EVERY_MS = 500;

export interface OpenAnswers {
  /** Watches an answer until it is complete or its client has left. `isOpened`: whether its key still opens it. */
  watch(reply: FastifyReply, isOpened: () => Promise<boolean>): void;
  close(): Promise<void>;
}

/**
 * Answers that take long, such as followed logs, end when their key does: those under way are looked at twice a second, and cut
 * off when it no longer opens them. An answer that is done before costs nothing but its place in a set.
 */
export function watchOpenAnswers({ log }: Pick<Context, 'log'>): OpenAnswers {
  const open = new Map<FastifyReply, () => Promise<boolean>>();
  const loop = startLoop(
    async () => {
      for (const [reply, isOpened] of open) {
        if (!(await isOpened())) reply.raw.destroy();
      }
    },
    {
      intervalMs: LOOK_EVERY_MS,
      // Without the database nobody can be told to be refused; what is served from it ends by itself.
      onError: (error) => log.warn({ err: error }, 'the keys of open answers could not be looked at'),
      maxBackoffMs: LOOK_EVERY_MS,
    },
  );
  return {
    watch(reply, isOpened) {
      // The client left before: nothing would tell of it again.
      if (reply.raw.destroyed) return;
      open.set(reply, isOpened);
      reply.raw.once('close', () => open.delete(reply));
    },
    close: () => loop.stop(),
  };
}
