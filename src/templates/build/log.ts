import { StringDecoder } from 'node:string_decoder';
import type { Context } from '../../context.js';
import { announceTemplate } from '../../db/changes.js';
import { toStorable } from '../../lib/storable-text.js';
import { insertLog, type BuildSource, type LogPiece } from '../log-queries.js';

/** The most bytes of a log. The build reads the output that follows, and drops it. */
export const MOST_LOG_BYTES = 4 * 1024 * 1024;
/** The charge for a row beside its text: a command may alternate between its streams with each byte. */
const ROW_BYTES = 256;
const PIECE_CHARS = 16 * 1024;
const FLUSH_EVERY_MS = 200;
const MOST_PENDING = 256;

/** Writes the log of a build to the store. Only the end of the build waits for it. */
export class BuildLog {
  private position = 0;
  private bytes = 0;
  private pending: LogPiece[] = [];
  private writing: Promise<void> = Promise.resolve();
  private timer: NodeJS.Timeout | undefined;
  private failure: unknown;

  constructor(
    private readonly ctx: Pick<Context, 'pool' | 'now'>,
    private readonly ref: { orgId: string; templateId: string },
  ) {}

  /** A line of the service. */
  say(text: string): void {
    this.add('build', `${text}\n`);
  }

  /** A stream of a command. Characters may be divided among its parts. */
  stream(source: 'stdout' | 'stderr'): { push(data: Buffer): void; end(): void } {
    const decoder = new StringDecoder('utf8');
    return {
      push: (data) => this.add(source, decoder.write(data)),
      end: () => this.add(source, decoder.end()),
    };
  }

  /** Resolves when everything is stored. Throws if a part could not be. */
  async flush(): Promise<void> {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.write();
    await this.writing;
    if (this.failure !== undefined) throw this.failure;
  }

  private add(source: BuildSource, text: string): void {
    if (text === '' || this.bytes >= MOST_LOG_BYTES) return;
    this.bytes += Buffer.byteLength(text);
    for (let at = 0; at < text.length; at += PIECE_CHARS) this.push(source, text.slice(at, at + PIECE_CHARS));
    if (this.bytes >= MOST_LOG_BYTES) {
      this.push(
        'build',
        `\nthe log is full at ${MOST_LOG_BYTES} bytes, ${ROW_BYTES} of them for each part: the following output is left out\n`,
      );
    }
    if (this.pending.length >= MOST_PENDING) this.write();
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.write();
    }, FLUSH_EVERY_MS);
  }

  private push(source: BuildSource, text: string): void {
    const last = this.pending.at(-1);
    if (last?.source === source && last.text.length + text.length <= PIECE_CHARS) {
      last.text += toStorable(text);
      return;
    }
    this.bytes += ROW_BYTES;
    this.pending.push({ position: (this.position += 1), at: this.ctx.now(), source, text: toStorable(text) });
  }

  private write(): void {
    const pieces = this.pending;
    if (pieces.length === 0) return;
    this.pending = [];
    const before = this.writing;
    this.writing = (async () => {
      await before;
      try {
        await insertLog(this.ctx.pool, this.ref, pieces);
        await announceTemplate(this.ctx.pool, this.ref.templateId);
      } catch (error) {
        this.failure ??= error;
      }
    })();
  }
}
