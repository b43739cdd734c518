import { Buffer } from 'node:buffer';

export class ByteList {
  constructor(readonly bytes: Buffer) {}
}

const [COMMA, CLOSE, ZERO, NINE] = [0x2c, 0x5d, 0x30, 0x39];
const SPACES = new Set([0x20, 0x09, 0x0a, 0x0d]);
const FIRST_SIZE = 4_096;

/** Reads the text of a JSON list of bytes, such as `[104, 105]`, from behind its bracket. */
export class ByteListReader {
  /** `other`: the text is something else. */
  state: 'open' | 'complete' | 'other' = 'open';
  count = 0;
  digits = 0;
  private value = 0;
  private isEnded = false;
  private bytes = Buffer.allocUnsafe(FIRST_SIZE);

  /** Returns the index after the closing bracket, or that of the first byte that fits no list of bytes. */
  read(chunk: Buffer, from: number): number {
    for (let at = from; at < chunk.length; at += 1) {
      const byte = chunk[at]!;
      if (byte >= ZERO && byte <= NINE && !this.isEnded && !this.hasLeadingZero()) {
        this.value = this.value * 10 + byte - ZERO;
        this.digits += 1;
        if (this.value > 255) return this.leave(at + 1);
      } else if (SPACES.has(byte)) this.isEnded = this.digits > 0;
      else if (this.digits > 0 && byte === COMMA) this.add();
      else if (this.digits > 0 && byte === CLOSE) {
        this.add();
        this.state = 'complete';
        return at + 1;
      } else return this.leave(at);
    }
    return chunk.length;
  }

  get list(): ByteList {
    return new ByteList(this.bytes.subarray(0, this.count));
  }

  private hasLeadingZero(): boolean {
    return this.digits > 0 && this.value === 0;
  }

  private leave(at: number): number {
    this.state = 'other';
    return at;
  }

  private add(): void {
    if (this.count === this.bytes.length) {
      this.bytes = Buffer.concat([this.bytes, Buffer.allocUnsafe(this.bytes.length)]);
    }
    this.bytes[this.count] = this.value;
    this.count += 1;
    [this.value, this.digits, this.isEnded] = [0, 0, false];
  }
}
