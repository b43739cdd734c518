import type { Readable, Writable } from 'node:stream';

const LINE_BREAK = 10;

/**
 * Calls `receive` with each line of JSON, in their order. The first line that is longer than `longest` bytes, or no
 * JSON, ends the reading with `fail`.
 */
export function readMessages<Message>(
  input: Readable,
  longest: number,
  { receive, fail }: { receive: (message: Message) => void; fail: (reason: string) => void },
): void {
  let parts: Buffer[] = [];
  let length = 0;
  const stop = (reason: string) => {
    input.off('data', take).resume();
    fail(reason);
  };
  const take = (chunk: Buffer) => {
    let from = 0;
    for (let end = chunk.indexOf(LINE_BREAK); end !== -1; end = chunk.indexOf(LINE_BREAK, from)) {
      parts.push(chunk.subarray(from, end));
      length += end - from;
      from = end + 1;
      if (length > longest) return stop('a line is too long');
      const message = parse<Message>(Buffer.concat(parts));
      parts = [];
      length = 0;
      if (message === undefined) return stop('a line is no JSON');
      receive(message);
    }
    if (from < chunk.length) parts.push(chunk.subarray(from));
    length += chunk.length - from;
    if (length > longest) stop('a line is too long');
  };
  input.on('data', take);
}

function parse<Message>(line: Buffer): Message | undefined {
  try {
    return JSON.parse(line.toString('utf8')) as Message;
  } catch {
    return undefined;
  }
}

/** Writes lines of JSON. The lines of one iteration of the event loop are one write. */
export class MessageWriter<Message> {
  private isCorked = false;

  /** `most`: the bytes that may wait for the reader. */
  constructor(
    private readonly output: Writable,
    private readonly most: number,
  ) {}

  /** False when the reader is too slow: the message is lost. */
  write(message: Message): boolean {
    if (!this.output.writable || this.output.writableLength > this.most) return false;
    if (!this.isCorked) {
      this.isCorked = true;
      this.output.cork();
      process.nextTick(() => {
        this.isCorked = false;
        this.output.uncork();
      });
    }
    this.output.write(`${JSON.stringify(message)}\n`);
    return true;
  }
}
