import { Buffer } from 'node:buffer';
import { afterEach, beforeAll, expect, test } from 'vitest';
import { attachedStream } from '../../src/engines/docker/engine-stream.js';
import { AGENT_PROGRAM } from '../../src/guest/programs.js';
import { ANSWER, REQUEST } from '../../src/guest/protocol.js';
import { encodeFrame, FrameReader } from '../../src/guest/wire.js';
import { installApplets, startSandbox, type TestSandbox } from '../support/docker-guest.js';
import { describeDocker, makeImage } from '../support/docker.js';
import { until } from '../support/polling.js';

const FRAMES = 20_000;
const SEED = Number(process.env['SANDKEEP_TEST_SEED'] ?? Date.now() % 1_000_000);
const PATHS = [
  '',
  '/',
  '.',
  '..',
  '/tmp',
  '/tmp/a',
  '/tmp/a/b',
  '/dev/zero',
  '/dev/ptmx',
  '/proc/self/fd/0',
  '/etc',
];

/** Mulberry32. */
function randomOf(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

function randomFrame(random: (below: number) => number): Buffer {
  const bytes = (length: number) => Buffer.from(Array.from({ length }, () => random(256)));
  const small = (value: number, size: number) => Buffer.from([value, ...Array<number>(size - 1).fill(0)]);
  const text = (value: string) => Buffer.from(`${value}\0`);
  const path = () => text(random(10) === 0 ? 'x'.repeat(random(9_000)) : PATHS[random(PATHS.length)]!);
  const channel = random(6);
  switch (random(4)) {
    case 0: {
      const [argc, envc] = [random(3), random(3)];
      const head = [
        small(random(2), 1),
        bytes(4),
        bytes(4),
        small(argc, 2),
        small(envc, 2),
        small(random(3), 1),
      ];
      const texts = ['', random(2) ? '/tmp' : '', 'sh', 'yes', 'true', 'cat', '', '-c', 'A=b'].map(text);
      return encodeFrame(channel, REQUEST.exec, ...head, bytes(random(3) * 17), ...texts);
    }
    case 1:
      return encodeFrame(
        channel,
        REQUEST.files,
        small(1 + random(19), 1),
        small(random(3), 4),
        bytes(random(30)),
        path(),
        path(),
      );
    case 2:
      return encodeFrame(channel, random(12), bytes(random(64)));
    default: {
      const types = [
        REQUEST.input,
        REQUEST.credit,
        REQUEST.close,
        REQUEST.signal,
        REQUEST.resize,
        REQUEST.endOwner,
      ];
      return encodeFrame(channel, types[random(types.length)]!, bytes(random(9)));
    }
  }
}

describeDocker(`the agent and hostile frames (seed ${SEED})`, () => {
  let sandbox: TestSandbox;
  beforeAll(() => makeImage());
  afterEach(() => sandbox.remove());

  /** The frames of the agent and the end of its stream. */
  async function openRaw() {
    sandbox = await startSandbox();
    installApplets(sandbox.container);
    const options = { Cmd: [AGENT_PROGRAM], AttachStdin: true, AttachStdout: true, AttachStderr: true };
    const exec = await sandbox.container.exec(options);
    const stream = attachedStream(await exec.start({ hijack: true, stdin: true }));
    const counts = new Map<number, number>();
    const reader = new FrameReader();
    const state = { hasEnded: false, isBroken: false };
    stream.on('data', (data: Buffer) => {
      try {
        for (const { type } of reader.push(data)) counts.set(type, (counts.get(type) ?? 0) + 1);
      } catch {
        state.isBroken = true;
      }
    });
    for (const event of ['end', 'close', 'error']) stream.on(event, () => (state.hasEnded = true));
    return { stream, counts, state };
  }

  async function processes(): Promise<string[][]> {
    const { Processes } = (await sandbox.container.top({ ps_args: '-eo pid,rss,comm' })) as {
      Processes: string[][];
    };
    return Processes;
  }

  test('it answers after random frames, and has grown little', async () => {
    const { stream, counts, state } = await openRaw();
    const random = randomOf(SEED);
    for (let sent = 0; sent < FRAMES; sent += 100) {
      const batch = Buffer.concat(Array.from({ length: 100 }, () => randomFrame(random)));
      if (!stream.write(batch)) await new Promise((resolve) => stream.once('drain', resolve));
      stream.write(encodeFrame(0, REQUEST.ping));
    }
    await until(
      () => Promise.resolve(counts.get(ANSWER.pong) ?? 0),
      (pongs) => pongs >= FRAMES / 100 || state.hasEnded,
    );
    expect(state).toEqual({ hasEnded: false, isBroken: false });
    expect(counts.get(ANSWER.done)).toBeGreaterThan(1_000);
    const sizes = (await processes()).filter(([, , name]) => name === 'agent').map(([, kib]) => Number(kib));
    expect(sizes.length).toBeGreaterThan(0);
    expect(Math.max(...sizes)).toBeLessThan(100_000);
    stream.destroy();
    // The frames may have removed every file of the image.
    await until(processes, (left) => left.length === 1);
  });

  test.each([
    ['a frame that is too long', Buffer.from('ffffffff0100000001', 'hex')],
    ['a frame that is one byte too long', Buffer.from('010004000100000001', 'hex')],
  ])('it ends at %s', async (_name, bytes) => {
    const { stream, state } = await openRaw();
    stream.write(bytes);
    await until(
      () => Promise.resolve(state),
      ({ hasEnded }) => hasEnded,
    );
    expect(state.hasEnded).toBe(true);
  });
});
