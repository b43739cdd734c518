import { Buffer } from 'node:buffer';
import { Duplex } from 'node:stream';

const HEADER = 8;
const STDOUT = 1;
/** The engine cuts output into smaller frames than this. */
const MAX_FRAME = 1 << 20;

/**
 * The standard input and output of an exec, over the connection that the engine has hijacked. The engine frames output: a byte for
 * the stream, three zeros, and a length (u32, big-endian). The error output is dropped.
 */
export function attachedStream(connection: Duplex): Duplex {
  let buffered = Buffer.alloc(0);
  const stream = new Duplex({
    read() {
      connection.resume();
    },
    write(chunk: Buffer, _encoding, done) {
      connection.write(chunk, (error) => done(error ?? null));
    },
    final(done) {
      connection.end(() => done());
    },
    destroy(error, done) {
      connection.destroy();
      done(error);
    },
  });
  connection.on('data', (chunk: Buffer) => {
    buffered = buffered.length === 0 ? (chunk as typeof buffered) : Buffer.concat([buffered, chunk]);
    while (buffered.length >= HEADER) {
      const length = buffered.readUInt32BE(4);
      if (length > MAX_FRAME) {
        stream.destroy(new Error(`the engine sent a frame of ${length} bytes`));
        return;
      }
      if (buffered.length < HEADER + length) return;
      const data = buffered.subarray(HEADER, HEADER + length);
      const isOutput = buffered.readUInt8(0) === STDOUT;
      buffered = buffered.subarray(HEADER + length);
      if (isOutput && !stream.push(data)) connection.pause();
    }
  });
  connection.on('end', () => stream.push(null));
  connection.on('close', () => stream.destroy());
  connection.on('error', () => stream.destroy());
  return stream;
}
