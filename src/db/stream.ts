import { Readable } from 'node:stream';
import { sleep } from '../lib/sleep.js';
import type { Pool } from './pool.js';
import { inTransaction, type Transaction } from './transaction.js';

/** Small, so that a slow reader makes visible progress. */
const PIECE_BYTES = 64 * 1024;
const STATEMENT_TIMEOUT_MS = 120_000;
const CANCEL_EVERY_MS = 100;

export class ReaderGone extends Error {}

export interface StreamOptions {
  beforeSnapshot?: ((tx: Transaction) => Promise<void>) | undefined;
  gone: AbortSignal;
  /** A failure after the first output, just before the stream breaks. */
  onBreak: () => void;
  /** The connection is back in the pool. `error`: a failure other than the reader's departure. */
  onEnd: (error?: unknown) => void;
}

/**
 * Streams the output of `produce` from one snapshot, as fast as the reader reads. A failure before the first output
 * rejects, with ReaderGone when the reader has left. A later failure breaks the stream.
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
  // Without a listener an error before the hand-over would end the process.
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
 * Cancels the statements of `work` when the signal aborts. Returns after the last cancellation, which must not hit a
 * later user of the connection.
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
    // A cancellation between two statements has no effect, so it is repeated.
    while (!over.signal.aborted) {
      await pool.query('select cancel_statement($1)', [rows[0]!.pid]);
      await sleep(CANCEL_EVERY_MS, over.signal);
    }
  };
  const onAbort = () => {
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
