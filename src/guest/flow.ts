import { LIMIT } from './protocol.js';

/** The room for input that the agent has left. */
export class InputWindow {
  private left: number = LIMIT.inputWindow;
  private isClosed = false;
  private waiting: (() => void)[] = [];

  /** Waits for room and takes at most `wanted` bytes of it. Resolves with 0 when the channel is closed. */
  async take(wanted: number): Promise<number> {
    while (this.left === 0 && !this.isClosed)
      await new Promise<void>((resolve) => this.waiting.push(resolve));
    if (this.isClosed) return 0;
    const taken = Math.min(this.left, wanted);
    this.left -= taken;
    return taken;
  }

  /** Returns whether there is more room than before. */
  giveBack(bytes: number): boolean {
    const before = this.left;
    this.left = Math.min(LIMIT.inputWindow, before + bytes);
    this.wake();
    return this.left > before;
  }

  close(): void {
    this.isClosed = true;
    this.wake();
  }

  private wake(): void {
    for (const resolve of this.waiting.splice(0)) resolve();
  }
}

/** The output that the agent may send on a channel. */
export class OutputCredit {
  private unread = 0;
  /** The cost of the unread frames beyond their bytes. */
  private surcharge = 0;

  constructor(private left: number) {}

  /** Throws RangeError for a frame that has no credit. */
  spend(bytes: number): void {
    if (bytes === 0 || bytes > this.left)
      throw new RangeError(`the guest sent ${bytes} bytes without credit`);
    const cost = Math.max(bytes, LIMIT.frameCost);
    this.left -= cost;
    this.unread += bytes;
    this.surcharge += cost - bytes;
  }

  /** Returns the credit to grant to the agent when a reader has taken so many bytes. */
  grant(bytes: number): number {
    const share = bytes < this.unread ? bytes / this.unread : 1;
    const refund = Math.floor(this.surcharge * share);
    this.surcharge -= refund;
    this.unread = Math.max(0, this.unread - bytes);
    this.left += bytes + refund;
    return bytes + refund;
  }
}
