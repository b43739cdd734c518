import { SingleBar } from 'cli-progress';

const LINE_EVERY_MS = 10_000;

/** The progress of long work: a bar on a terminal, otherwise a line at intervals. */
export class Progress {
  private readonly bar: SingleBar | undefined;
  private readonly begun = performance.now();
  private part = '';
  private done = 0;
  private total: number | undefined;
  private told = performance.now();

  constructor(private readonly what: string) {
    if (!process.stderr.isTTY) return;
    this.bar = new SingleBar({
      format: `${what}: {bar} {value} of {total} {part}, {duration_formatted}`,
      stream: process.stderr,
      barsize: 30,
      hideCursor: true,
    });
  }

  /** Begins the next part. Without a total its progress is unknown. */
  begin(part: string, total?: number): void {
    Object.assign(this, { part, total, done: 0 });
    this.bar?.stop();
    this.bar?.start(total ?? 1, 0, { part });
    if (!this.bar) this.tell();
  }

  readonly add = (count: number, part = this.part): void => {
    this.done += count;
    this.part = part;
    this.bar?.increment(count, { part });
    if (!this.bar && performance.now() - this.told >= LINE_EVERY_MS) this.tell();
  };

  end(): void {
    this.bar?.stop();
  }

  private tell(): void {
    this.told = performance.now();
    const seconds = ((this.told - this.begun) / 1000).toFixed(0);
    const far = this.total === undefined ? '' : `${this.done} of ${this.total} `;
    console.error(`${this.what}: ${far}${this.part}, ${seconds} s`);
  }
}
