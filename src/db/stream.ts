import { Readable } from 'node:stream';
import type { Pool } from './pool.js';
import { inTransaction, type Transaction } from './transaction.js';

const BUFFER_BYTES = 256 * 1024;
const STATEMENT_TIMEOUT_MS = 120_000;

/** The reader went away, or takes nothing any more. */
class ReaderGone extends Error {}

/**
 * What `produce` yields as a stream, read from one snapshot of the database. No more is read than the reader takes; one
 * that takes nothing for `stallMs` milliseconds is cut off, so that it cannot keep a connection and a snapshot.
 * Rejects when it fails before there is anything to send; later the stream breaks off. `onEnd` is called once the connection
 * is back in the pool.
 */
export async function streamSnapshot(
  pool: Pool,
  { stallMs, onEnd }: { stallMs: number; onEnd: (error?: unknown) => void },
  produce: (tx: Transaction) => AsyncIterable<string>,
): Promise<Readable> {
  let wanted: () => void = () => undefined;
  const stream = new Readable({ highWaterMark: BUFFER_BYTES, read: () => wanted() });
  stream.once('close', () => wanted());
  // Who has the stream hears of it; before anybody has, the promise says it.
  stream.on('error', () => undefined);

  async function write(text: string): Promise<void> {
    if (stream.destroyed) throw new ReaderGone('the reader is gone');
    if (stream.push(text)) return;
    let timer: NodeJS.Timeout | undefined;
    const stalled = await new Promise<boolean>((resolve) => {
      timer = setTimeout(() => resolve(true), stallMs);
      wanted = () => resolve(false);
    });
    clearTimeout(timer);
    wanted = () => undefined;
    if (stalled) throw new ReaderGone(`the reader took nothing for ${stallMs} ms`);
  }

  async function run(sent: () => void): Promise<void> {
    await inTransaction(
      pool,
      async (tx) => {
        await tx.query('set transaction isolation level repeatable read, read only');
        await tx.query(
          `set local statement_timeout = ${STATEMENT_TIMEOUT_MS}; set local cursor_tuple_fraction = 0.01`,
        );
        for await (const text of produce(tx)) {
          const written = write(text);
          sent();
          await written;
        }
      },
      { unhurried: true },
    );
    stream.push(null);
    sent();
  }

  return new Promise((resolve, reject) => {
    run(() => resolve(stream))
      .then(() => onEnd())
      .catch((error: unknown) => {
        stream.destroy(error as Error);
        reject(error);
        onEnd(error instanceof ReaderGone ? undefined : error);
      });
  });
}
