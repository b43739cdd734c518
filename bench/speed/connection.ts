import { connect, type Socket } from 'node:net';

/** The end of an answer without a length. JSON has no line ends of this kind. */
const LAST_CHUNK = '\r\n0\r\n\r\n';

/**
 * A connection that sends a request after the previous answer, and parses as little as possible. On two cores the
 * generator takes time from the server: this took 48 microseconds a request where floor A took 66, and `fetch` 1,700.
 */
export class Connection {
  private pending: { resolve: (status: number) => void; reject: (error: Error) => void } | undefined;
  private head = '';
  private status = 0;
  /** Bytes that are missing; undefined in the head; -1 when the end shows by itself. */
  private missing: number | undefined;
  private tail = '';
  /** The beginning of the last answer, for error messages. */
  beginning = '';

  private constructor(private readonly socket: Socket) {
    socket.on('data', (chunk: Buffer) => this.take(chunk));
    socket.on('error', (error) => this.pending?.reject(error));
    socket.on('close', () => this.pending?.reject(new Error('the server closed the connection')));
  }

  static async open(host: string, port: number): Promise<Connection> {
    const socket = connect({ host, port, noDelay: true });
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
    });
    return new Connection(socket);
  }

  /** Resolves with the status after the last byte. */
  ask(request: Buffer | string): Promise<number> {
    return new Promise((resolve, reject) => {
      this.pending = { resolve, reject };
      this.socket.write(request);
    });
  }

  close(): void {
    this.socket.destroy();
  }

  private take(chunk: Buffer): void {
    let length = chunk.length;
    if (this.missing === undefined) {
      this.head += chunk.toString('latin1');
      const end = this.head.indexOf('\r\n\r\n');
      if (end < 0) return;
      length = this.head.length - end - 4;
      this.status = Number(this.head.slice(9, 12));
      const given = /\r\ncontent-length: *(\d+)/i.exec(this.head.slice(0, end))?.[1];
      this.missing = given === undefined ? -1 : Number(given);
      this.beginning = this.head.slice(0, end + 500);
      this.tail = this.head.slice(end);
      this.head = '';
    } else if (this.missing === -1) {
      this.tail = (this.tail + chunk.toString('latin1', Math.max(0, chunk.length - 16))).slice(-16);
    }
    if (this.missing === -1) {
      if (this.tail.endsWith(LAST_CHUNK)) this.done();
      return;
    }
    this.missing -= length;
    if (this.missing === 0) this.done();
  }

  private done(): void {
    this.missing = undefined;
    const { pending } = this;
    this.pending = undefined;
    pending?.resolve(this.status);
  }
}
