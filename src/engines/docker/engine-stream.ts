import { Buffer } from 'node:buffer';
import { Duplex } from 'node:stream';

const HEADER = 8;
const STDOUT = 1;

/**
 * The standard input and output of an exec, over the connection that the engine has hijacked. The engine frames output:
 * a byte for the stream, three zeros, and a length (u32, big-endian). The error output is dropped.
 */
export function attachedStream(connection: Duplex): Duplex {
  const header = Buffer.alloc(HEADER);
  let headerHas = 0;
  let left = 0;
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
    for (let at = 0; at < chunk.length;) {
      if (left === 0) {
        const copied = chunk.copy(header, headerHas, at);
        at += copied;
        headerHas += copied;
        if (headerHas < HEADER) return;
        headerHas = 0;
        left = header.readUInt32BE(4);
      } else {
        const data = chunk.subarray(at, at + left);
        at += data.length;
        left -= data.length;
        if (header.readUInt8(0) === STDOUT && !stream.push(data)) connection.pause();
      }
    }
  });
  connection.on('end', () => stream.push(null));
  connection.on('close', () => stream.destroy());
  connection.on('error', () => stream.destroy());
  return stream;
}
