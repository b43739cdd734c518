/**
 * The beginning and the end of a text that may be long: a failure is usually at its end, and the cause at its
 * beginning. `most`: the characters that are kept.
 */
export class KeptOutput {
  private readonly half: number;
  private head = '';
  private tail: string[] = [];
  private tailLength = 0;
  private all = 0;

  constructor(most: number) {
    this.half = Math.floor(most / 2);
  }

  push(text: string): void {
    this.all += text.length;
    const room = this.half - this.head.length;
    this.head += text.slice(0, room);
    if (text.length <= room) return;
    const more = text.slice(Math.max(room, text.length - this.half));
    this.tail.push(more);
    this.tailLength += more.length;
    // Joined once in a while, so that many small pieces cost no copy each.
    if (this.tailLength > 2 * this.half) {
      this.tail = [this.lastHalf()];
      this.tailLength = this.half;
    }
  }

  get isCut(): boolean {
    return this.all > 2 * this.half;
  }

  toString(): string {
    const tail = this.lastHalf();
    const missing = this.all - this.head.length - tail.length;
    const gap = missing > 0 ? `\n[… ${missing.toLocaleString('en-US')} characters are left out …]\n` : '';
    return this.head + gap + tail;
  }

  private lastHalf(): string {
    return this.half === 0 ? '' : this.tail.join('').slice(-this.half);
  }
}
