import { Buffer } from 'node:buffer';
import type { RequestOptions } from 'node:https';
import { Duplex } from 'node:stream';
import { WebSocket, type RawData } from 'ws';
import type { Cluster } from './client.js';
import { CONTAINER, type Place } from './names.js';

const PROTOCOL = 'v4.channel.k8s.io';
const STDIN = 0;
const STDOUT = 1;
const STATUS = 3;
const LARGEST_MESSAGE = 32 * 1024;
/** A proxy closes a connection that is silent for a minute. */
const PING_MS = 20_000;
const OPEN_TIMEOUT_MS = 15_000;
const LONGEST_OPENING = 1_024;

export interface ExecStream {
  stream: Duplex;
  /**
   * The begin of the output, and the words of the cluster for the end: some engines give the reason of a failed start
   * as output.
   */
  opening: () => string;
}

/**
 * The standard input and output of a command that an exec of the cluster starts in a Pod. The first byte of each
 * message names the stream.
 */
export async function execStream(
  { config, server }: Cluster,
  { name: pod, namespace }: Place,
  command: readonly string[],
): Promise<ExecStream> {
  const url = new URL(`${server.replace(/^http/, 'ws')}/api/v1/namespaces/${namespace}/pods/${pod}/exec`);
  const query = { container: CONTAINER, stdin: 'true', stdout: 'true', stderr: 'false' };
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  for (const part of command) url.searchParams.append('command', part);
  const options: RequestOptions = {};
  await config.applyToHTTPSOptions(options);
  const socket = new WebSocket(url, [PROTOCOL], { ...options, handshakeTimeout: OPEN_TIMEOUT_MS });
  let opening = '';
  socket.on('message', (message: RawData) => {
    const room = LONGEST_OPENING - opening.length;
    if (room > 0) opening += (message as Buffer).toString('latin1', 1, 1 + room);
  });
  const stream = streamOf(socket);
  await new Promise<void>((resolve, reject) => {
    socket.once('open', resolve);
    socket.once('error', reject);
  });
  return { stream, opening: () => opening };
}

function streamOf(socket: WebSocket): Duplex {
  const ping = setInterval(() => socket.ping(), PING_MS).unref();
  const stream = new Duplex({
    read() {
      if (socket.isPaused) socket.resume();
    },
    write(chunk: Buffer, _encoding, done) {
      sendPieces(socket, chunk, done);
    },
    // The protocol cannot end the input alone.
    final(done) {
      socket.close();
      done();
    },
    destroy(error, done) {
      clearInterval(ping);
      socket.terminate();
      done(error);
    },
  });
  socket.on('message', (message: RawData) => {
    const data = message as Buffer;
    if (data[0] === STDOUT && data.length > 1 && !stream.push(data.subarray(1))) socket.pause();
    if (data[0] === STATUS) stream.push(null);
  });
  socket.on('close', () => stream.destroy());
  socket.on('error', () => stream.destroy());
  return stream;
}

function sendPieces(socket: WebSocket, chunk: Buffer, done: (error?: Error | null) => void): void {
  if (chunk.length === 0) return done();
  for (let at = 0; at < chunk.length; at += LARGEST_MESSAGE) {
    const piece = chunk.subarray(at, at + LARGEST_MESSAGE);
    const isLast = at + piece.length === chunk.length;
    socket.send(Buffer.concat([Buffer.from([STDIN]), piece]), (error) => {
      if (isLast) done(error ?? null);
    });
  }
}
