import { once } from 'node:events';
import { finished } from 'node:stream/promises';
import type { Client } from 'pg';
import { from as copyFrom } from 'pg-copy-streams';

export type Cell = string | number | boolean | Buffer | null;

const CHUNK = 256 * 1024;

/** Writes rows into a table by COPY, with back-pressure. */
export class RowWriter {
  private readonly stream;
  private readonly ended: Promise<void>;
  private chunk = '';

  /** `into`: the table, and its columns in brackets. */
  constructor(client: Client, into: string) {
    this.stream = client.query(copyFrom(`copy ${into} from stdin`));
    this.ended = finished(this.stream);
    // `end`, or the next write of a chunk, reports the error.
    this.ended.catch(() => undefined);
  }

  /**
   * Returns a promise only when the caller must wait: a promise for each of ten million rows would take a tenth of
   * the time.
   */
  add(row: readonly Cell[]): Promise<void> | undefined {
    return this.addText(`${row.map(toText).join('\t')}\n`);
  }

  /** Adds rows in the text format of COPY. */
  addText(rows: string): Promise<void> | undefined {
    this.chunk += rows;
    return this.chunk.length < CHUNK ? undefined : this.flush();
  }

  async end(): Promise<void> {
    await this.flush();
    this.stream.end();
    await this.ended;
  }

  private async flush(): Promise<void> {
    const { chunk } = this;
    this.chunk = '';
    if (!this.stream.write(chunk)) await Promise.race([once(this.stream, 'drain'), this.ended]);
  }
}

export async function copyRows(client: Client, into: string, rows: Iterable<readonly Cell[]>): Promise<void> {
  const writer = new RowWriter(client, into);
  for (const row of rows) await writer.add(row);
  await writer.end();
}

const SPECIAL = /[\\\n\r\t]/g;
const ESCAPED: Record<string, string> = { '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' };

function toText(cell: Cell): string {
  if (cell === null) return '\\N';
  if (Buffer.isBuffer(cell)) return `\\\\x${cell.toString('hex')}`;
  return String(cell).replace(SPECIAL, (character) => ESCAPED[character]!);
}
