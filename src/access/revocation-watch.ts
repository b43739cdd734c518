import type { FastifyReply } from 'fastify';
import type { Context } from '../context.js';
import { Linked, LinkedList } from '../lib/linked-list.js';

declare module 'fastify' {
  interface FastifyReply {
    watched: Watched | null;
  }
}

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

class Watched extends Linked {
  /** A check that hangs delays no other. */
  isChecked = false;

  constructor(
    readonly reply: FastifyReply,
    readonly isAuthorized: () => Promise<boolean>,
  ) {
    super();
  }
}

/**
 * Ends long responses, such as followed logs, together with their keys. A short response only costs an entry in a list.
 */
export function makeRevocationWatch({ log }: Pick<Context, 'log'>): RevocationWatch {
  const open = new LinkedList<Watched>();
  let failure: { err: unknown } | undefined;

  async function check(watched: Watched): Promise<void> {
    if (watched.isChecked) return;
    watched.isChecked = true;
    const { reply } = watched;
    try {
      if (await watched.isAuthorized()) return;
      const end = ends.get(reply) ?? (() => reply.raw.destroy());
      end();
    } catch (error) {
      // Without the database the state of a key is unknown. Responses that read the database end by themselves.
      failure = { err: error };
    } finally {
      watched.isChecked = false;
    }
  }

  const timer = setInterval(() => {
    // One line for all failures of an interval: they usually have the same cause.
    if (failure) log.warn(failure, 'checking the keys of open responses failed');
    failure = undefined;
    for (const watched of open) {
      const { raw, request } = watched.reply;
      // A response that queues behind others of its connection sees only the socket close.
      if (raw.destroyed || request.raw.socket.destroyed) open.delete(watched);
      else void check(watched);
    }
  }, CHECK_INTERVAL_MS);
  return {
    watch(reply, isAuthorized) {
      if (reply.watched) open.delete(reply.watched);
      reply.watched = new Watched(reply, isAuthorized);
      open.add(reply.watched);
    },
    unwatch({ watched }) {
      if (watched) open.delete(watched);
    },
    close: () => clearInterval(timer),
  };
}
