import type { Buffer } from 'node:buffer';
import { Serial } from '../../lib/serial.js';
import { ApiError } from '../../http/errors.js';
import { GuestFileError } from '../../guest/guest.js';
import type { SessionRecord } from '../sessions/recorder.js';
import type { Envelope, Payload } from './envelope.js';
import { changesFiles, NOTHING, OPERATIONS, UINT32, type Answer } from './file-operations.js';
import { BadPayload, readBytes, readInteger, readMap, readOptionalUint64, readUint64 } from './payload.js';
import type { Link, Session } from './session.js';

/** The longest piece that is read from a file at once. */
const PIECE = 192 * 1024;
/** The data of a file that may be under way to the client. */
const WINDOW = 1024 * 1024;
const UNTIL_END = 1n << 64n;
const UNKNOWN_FAILURE = 'the sandbox has stopped, or the service cannot record the session now';

/** A file operation of a client. */
export class FileSession implements Session {
  private over = false;
  /** The end of the input of a write; undefined for every other operation. */
  private write: { handle: number; offset: bigint; left: bigint | null } | undefined;
  private readonly work = new Serial();
  private readonly window: number;
  private unsent = 0;
  private wake: () => void = () => undefined;

  constructor(
    private readonly link: Link,
    private readonly id: number,
    { payload, size }: Envelope,
  ) {
    this.window = link.window(WINDOW);
    const operations = readMap(payload, 'op');
    // A client may send any value as a key.
    const [name] = operations.keys() as Iterable<unknown>;
    const op = operations.size === 1 && typeof name === 'string' ? operations.get(name) : undefined;
    if (typeof name !== 'string' || !(op instanceof Map))
      throw new BadPayload('"op" must be a map of one operation');
    if (changesFiles(name, op as Payload)) this.count((record) => record.written());
    if (name === 'Write') {
      this.write = {
        handle: readInteger(op as Payload, 'handle', 0, UINT32),
        offset: readUint64(op as Payload, 'offset'),
        left: readOptionalUint64(op as Payload, 'len') ?? null,
      };
      link.files.check(this.write.handle);
    } else if (name === 'Read') this.run(() => this.read(op as Payload), size);
    else {
      const operation = Object.hasOwn(OPERATIONS, name) ? OPERATIONS[name] : undefined;
      if (!operation) throw new BadPayload(`there is no file operation "${name.slice(0, 40)}"`);
      this.run(() => operation(link.files, op as Payload), size);
    }
  }

  receive(type: string, { payload }: Envelope): void {
    const { write } = this;
    if (type !== 'core.fs.data' || !write || this.over) return;
    const data = readBytes(payload, 'data');
    if (data.length === 0) {
      this.run(() => this.endWrite(write.left), 0);
      this.write = undefined;
      return;
    }
    const { handle, offset } = write;
    write.offset += BigInt(data.length);
    if (write.left !== null) write.left -= BigInt(data.length);
    this.count((record) => record.received(data.length));
    const release = this.link.hold(data.length);
    this.work.run(async () => {
      try {
        if (await this.begin()) await this.link.files.guest.write(handle, offset, data);
      } catch (error) {
        this.fail(error);
      } finally {
        release();
      }
    });
  }

  abandon(): void {
    this.over = true;
    this.wake();
  }

  private endWrite(left: bigint | null): Promise<Answer> {
    if (left === null || left === 0n) return Promise.resolve(NOTHING);
    const rest = left > 0n ? `${left} bytes fewer` : `${-left} bytes more`;
    throw new BadPayload(`the client sent ${rest} than "len"`);
  }

  private async read(op: Payload): Promise<Answer> {
    const handle = readInteger(op, 'handle', 0, UINT32);
    let offset = readUint64(op, 'offset');
    let left = readOptionalUint64(op, 'len') ?? UNTIL_END;
    while (!this.over && left > 0n) {
      const wanted = left < PIECE ? Number(left) : PIECE;
      const data = await this.link.files.guest.read(handle, offset, wanted);
      if (data.length === 0) break;
      offset += BigInt(data.length);
      left -= BigInt(data.length);
      this.count((record) => record.sent(data.length));
      await this.deliver(data);
    }
    return NOTHING;
  }

  /** Resolves when the client has taken enough of the data before. */
  private async deliver(data: Buffer): Promise<void> {
    this.unsent += data.length;
    this.link.send(this.id, 'core.fs.data', { data }, () => {
      this.unsent -= data.length;
      this.wake();
    });
    while (this.unsent > this.window && !this.over)
      await new Promise<void>((resolve) => (this.wake = resolve));
  }

  /** Operations begin when their session is recorded; the counts follow. */
  private count(add: (record: SessionRecord) => void): void {
    void this.link.recorder.files().then(add, () => undefined);
  }

  /** Answers with the result of the work, after all work before it. `size`: of the message that asks for it. */
  private run(work: () => Promise<Answer>, size: number): void {
    const release = this.link.hold(size);
    this.work.run(async () => {
      try {
        if (!(await this.begin())) return;
        const { data } = await work();
        this.respond({ ok: true, error: null, data });
      } catch (error) {
        this.fail(error);
      } finally {
        release();
      }
    });
  }

  /** Resolves with whether the work may begin: its session is recorded, and the client is still there. */
  private async begin(): Promise<boolean> {
    if (!this.over) await this.link.recorder.files();
    return !this.over;
  }

  private fail(error: unknown): void {
    const isKnown =
      error instanceof GuestFileError || error instanceof BadPayload || error instanceof ApiError;
    this.respond({ ok: false, error: isKnown ? error.message : UNKNOWN_FAILURE, data: null });
  }

  private respond(answer: { ok: boolean; error: string | null; data: object | null }): void {
    if (this.over) return;
    this.over = true;
    this.link.finish(this.id, 'core.fs.response', answer);
  }
}
