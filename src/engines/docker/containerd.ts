import { connect, type IncomingHttpHeaders } from 'node:http2';
import { connect as connectSocket } from 'node:net';

/**
 * The part of the API of containerd that names the directories of a container's disk. Docker keeps images there by
 * default from 29 on.
 */

export interface ContainerdPlace {
  /** The path of its socket. */
  Address: string;
  Namespaces: { Containers: string };
}

export interface SnapshotMount {
  type: string;
  source: string;
  options: string[];
}

const PATH = '/containerd.services.snapshots.v1.Snapshots/Mounts';
const TIMEOUT_MS = 10_000;
const LARGEST_BYTES = 1024 * 1024;
/** Before a message: a flag, and its length in four bytes. */
const PREFIX_BYTES = 5;
const TEXT = 2;

/** Mounts nothing: containerd answers how it would mount the snapshot. */
export async function snapshotMounts(
  { Address, Namespaces }: ContainerdPlace,
  snapshotter: string,
  key: string,
): Promise<SnapshotMount[]> {
  const session = connect('http://containerd', { createConnection: () => connectSocket(Address) });
  try {
    const answer = await new Promise<Buffer>((resolve, reject) => {
      const call = session.request({
        ':method': 'POST',
        ':path': PATH,
        'content-type': 'application/grpc',
        te: 'trailers',
        'containerd-namespace': Namespaces.Containers,
      });
      const fail = (why: string) => reject(new Error(`containerd does not name the disk of ${key}: ${why}`));
      const chunks: Buffer[] = [];
      let length = 0;
      let status = 'no status';
      const takeStatus = (headers: IncomingHttpHeaders) => {
        if (headers['grpc-status'] === undefined) return;
        status = [headers['grpc-status'], headers['grpc-message']].flat().join(' ').trim();
      };
      session.on('error', reject);
      call.on('error', (error) => reject(error.cause instanceof Error ? error.cause : error));
      call.setTimeout(TIMEOUT_MS, () => session.destroy(new Error('containerd does not answer')));
      call.on('response', takeStatus).on('trailers', takeStatus);
      call.on('data', (chunk: Buffer) => {
        length += chunk.length;
        if (length > LARGEST_BYTES) return session.destroy(new Error('containerd answers too much'));
        chunks.push(chunk);
      });
      call.on('end', () => (status === '0' ? resolve(Buffer.concat(chunks)) : fail(status)));
      call.end(framed(Buffer.concat([textField(1, snapshotter), textField(2, key)])));
    });
    return [...fieldsOf(answer.subarray(PREFIX_BYTES))].map(([, mount]) => mountOf(mount));
  } finally {
    session.destroy();
  }
}

function mountOf(message: Buffer): SnapshotMount {
  const mount: SnapshotMount = { type: '', source: '', options: [] };
  for (const [field, value] of fieldsOf(message)) {
    if (field === 1) mount.type = value.toString();
    if (field === 2) mount.source = value.toString();
    if (field === 4) mount.options.push(value.toString());
  }
  return mount;
}

function framed(message: Buffer): Buffer {
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

/** In the form of Protocol Buffers. */
function textField(field: number, text: string): Buffer {
  const bytes = Buffer.from(text);
  if (bytes.length > 127) throw new Error('the text has more bytes than its length can say');
  return Buffer.concat([Buffer.from([(field << 3) | TEXT, bytes.length]), bytes]);
}

/** The messages and texts of a message, which has no other fields. */
function* fieldsOf(message: Buffer): Generator<[field: number, value: Buffer]> {
  for (let at = 0; at < message.length;) {
    const [tag, afterTag] = readNumber(message, at);
    const [length, begin] = readNumber(message, afterTag);
    if ((tag & 7) !== TEXT || begin + length > message.length) {
      throw new Error('containerd answers in an unknown form');
    }
    yield [tag >> 3, message.subarray(begin, begin + length)];
    at = begin + length;
  }
}

function readNumber(message: Buffer, begin: number): [value: number, end: number] {
  let value = 0;
  for (let at = begin; at < Math.min(begin + 4, message.length); at += 1) {
    value += (message[at]! & 0x7f) << (7 * (at - begin));
    if (message[at]! < 0x80) return [value, at + 1];
  }
  throw new Error('containerd answers in an unknown form');
}
