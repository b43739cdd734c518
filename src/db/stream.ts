import { Readable } from 'node:stream';
import { sleep } from '../lib/sleep.js';
import type { Pool } from './pool.js';
import { inTransaction, type Transaction } from './transaction.js';

/** Small, so that a slow reader is seen to take something. */
const PIECE_BYTES = 64 * 1024;
const STATEMENT_TIMEOUT_MS = 120_000;
const CANCEL_EVERY_MS = 100;

/** The reader does not want any more. */
export class ReaderGone extends Error {}

export interface StreamOptions {
  /** Run before there is a snapshot: takes the locks without which what is in it could go. */
  beforeSnapshot?: ((tx: Transaction) => Promise<void>) | undefined;
  /** Aborts when nobody reads any more: the statement under way is cancelled. */
  gone: AbortSignal;
  /** Called when it fails after the first of it was handed out, just before the stream breaks off. */
  onBreak: () => void;
  /** Called once the connection is back in the pool; with what failed, unless the reader is gone. */
  onEnd: (error?: unknown) => void;
}

/**
 * What `produce` yields as a stream, read from one snapshot of the database. No more is read than the reader takes. Rejects when
 * it fails before there is anything to send (ReaderGone when the reader is); later the stream breaks off.
 */
export async function streamSnapshot(
  pool: Pool,
  { beforeSnapshot, gone, onBreak, onEnd }: StreamOptions,
  produce: (tx: Transaction) => AsyncIterable<string>,
): Promise<Readable> {
  let wanted: () => void = () => undefined;
  const stream = new Readable({ highWaterMark: PIECE_BYTES, read: () => wanted() });
  const wake = () => wanted();
  gone.addEventListener('abort', wake);
  stream.once('close', wake);
  // Who has the stream hears of it; before anybody has, the promise says it.
  stream.on('error', () => undefined);

  const ended = () => gone.aborted || stream.destroyed;

  async function write(text: string): Promise<void> {
    const bytes = Buffer.from(text);
    for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
      if (ended()) throw new ReaderGone();
      if (stream.push(bytes.subarray(at, at + PIECE_BYTES))) continue;
      await new Promise<void>((resolve) => (wanted = resolve));
      wanted = () => undefined;
    }
  }

  async function run(sent: () => void): Promise<void> {
    await inTransaction(
      pool,
      async (tx) => {
        if (ended()) throw new ReaderGone();
        await tx.query('set transaction isolation level repeatable read, read only');
        await tx.query(
          `set local statement_timeout = ${STATEMENT_TIMEOUT_MS}; set local cursor_tuple_fraction = 0.01`,
        );
        await beforeSnapshot?.(tx);
        await cancelledBy(pool, tx, gone, async () => {
          for await (const text of produce(tx)) {
            const written = write(text);
            sent();
            await written;
          }
        });
      },
      { unhurried: true },
    );
    stream.push(null);
    sent();
  }

  return new Promise((resolve, reject) => {
    let handedOut = false;
    const sent = () => {
      handedOut = true;
      resolve(stream);
    };
    run(sent)
      .then(() => onEnd())
      .catch((error: unknown) => {
        const left = ended();
        if (handedOut) onBreak();
        stream.destroy(error as Error);
        reject(left ? new ReaderGone() : error);
        onEnd(left ? undefined : error);
      })
      .finally(() => gone.removeEventListener('abort', wake));
  });
}

/**
 * Runs `work` in a transaction, and when the signal aborts cancels its statements, so that it fails. Returns only when no more of
 * that is on its way: it must not hit who has the connection next.
 */
async function cancelledBy(
  pool: Pool,
  tx: Transaction,
  signal: AbortSignal,
  work: () => Promise<void>,
): Promise<void> {
  const { rows } = await tx.query<{ pid: number }>('select pg_backend_pid() as pid');
  const over = new AbortController();
  let cancelling: Promise<void> | undefined;
  const cancel = async () => {
    // Again and again: one that arrives between two statements does nothing.
    while (!over.signal.aborted) {
      await pool.query('select cancel_statement($1)', [rows[0]!.pid]);
      await sleep(CANCEL_EVERY_MS, over.signal);
    }
  };
  const onAbort = () => {
    // When it cannot be cancelled, it ends by its time limit.
    cancelling = cancel().catch(() => undefined);
  };
  signal.addEventListener('abort', onAbort);
  if (signal.aborted) onAbort();
  try {
    await work();
  } finally {
    signal.removeEventListener('abort', onAbort);
    over.abort();
    await cancelling;
  }
}
