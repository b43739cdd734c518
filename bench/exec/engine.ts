import type Docker from 'dockerode';
import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import type { Outcome, Side } from './side.js';

const PIECE = Buffer.alloc(64 * 1024);
const POLL_MS = 1;

/** The floor: the calls that `docker exec` makes, without the start of its process. */
export function engineSide(docker: Docker, containerId: string): Side {
  async function exec(args: readonly string[], input?: (to: NodeJS.WritableStream) => Promise<void>) {
    const outcome: Outcome = { code: -1, bytes: 0, firstByteMs: 0, ms: 0 };
    const begun = performance.now();
    const made = await docker.getContainer(containerId).exec({
      Cmd: [...args],
      AttachStdin: input !== undefined,
      AttachStdout: true,
      AttachStderr: true,
    });
    const stream = await made.start({ hijack: true, stdin: input !== undefined });
    const stdout = new PassThrough();
    stdout.on('data', (data: Buffer) => {
      if (outcome.bytes === 0) outcome.firstByteMs = performance.now() - begun;
      outcome.bytes += data.length;
    });
    docker.modem.demuxStream(stream, stdout, stdout);
    const ended = once(stream, 'end');
    await input?.(stream);
    await ended;
    let state = await made.inspect();
    while (state.Running) {
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      state = await made.inspect();
    }
    return { ...outcome, code: state.ExitCode ?? -1, ms: performance.now() - begun };
  }

  return {
    name: 'engine exec',
    run: (args) => exec(args),
    send: (args, bytes) =>
      exec(args, async (to) => {
        for (let left = bytes; left > 0; left -= PIECE.length) {
          if (!to.write(PIECE.subarray(0, left))) await once(to, 'drain');
        }
        to.end();
      }),
  };
}
