import { Buffer } from 'node:buffer';
import type { InStep } from './stream.js';

type Stream = 'stdout' | 'stderr';

/** A step takes so many pieces at most, because each costs some microseconds, however small it is. */
const PIECES_OF_STEP = 256;
const BYTES_OF_STEP = 64 * 1024;
/** A smaller piece is copied: a slice would keep the memory of everything that came with it. */
const SMALL_BYTES = 16 * 1024;

/**
 * Takes the output of a command in steps of its owner. The command gets credit for more after the step. So its credit
 * bounds the output that waits, and the pace of its owner bounds the output that it writes.
 */
export class PacedOutput {
  private readonly waiting: { stream: Stream; data: Buffer }[] = [];
  private working: Promise<void> | undefined;

  constructor(
    private readonly inStep: InStep,
    private readonly take: (stream: Stream, data: Buffer) => void,
    private readonly grant: (bytes: number) => void,
  ) {}

  push(stream: Stream, data: Buffer): void {
    this.waiting.push({ stream, data: data.length < SMALL_BYTES ? Buffer.from(data) : data });
    this.begin();
  }

  get isBehind(): boolean {
    return this.waiting.length > 0;
  }

  /** Resolves when all output is taken. */
  async taken(): Promise<void> {
    await this.working;
  }

  /** A failure reaches the caller of `taken`. Until then the command waits. */
  private begin(): void {
    if (this.working) return;
    this.working = this.work();
    // Without a listener a failure would end the process.
    this.working.catch(() => undefined);
  }

  private async work(): Promise<void> {
    while (this.waiting.length > 0) {
      const granted = await this.inStep(() => {
        let bytes = 0;
        const pieces = this.waiting.splice(0, this.piecesOfStep());
        for (const { stream, data } of pieces) {
          this.take(stream, data);
          bytes += data.length;
        }
        return bytes;
      });
      this.grant(granted);
    }
    this.working = undefined;
  }

  private piecesOfStep(): number {
    let bytes = 0;
    const last = this.waiting.findIndex(({ data }, index) => {
      bytes += data.length;
      return bytes >= BYTES_OF_STEP || index + 1 === PIECES_OF_STEP;
    });
    return last === -1 ? this.waiting.length : last + 1;
  }
}
