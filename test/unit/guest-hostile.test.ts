import { Buffer } from 'node:buffer';
import { randomBytes } from 'node:crypto';
import { Duplex } from 'node:stream';
import { expect, test, vi } from 'vitest';
import { GuestAgent } from '../../src/guest/agent.js';
import { OutputCredit } from '../../src/guest/flow.js';
import { ANSWER, REQUEST } from '../../src/guest/protocol.js';
import { encodeFrame, FrameReader, type Frame } from '../../src/guest/wire.js';
import { errorOf, READ, TestCommand, TestConnection } from '../support/guest.js';

/** The other end of an agent: the test plays the guest. */
class HostileGuest {
  readonly requests: Frame[] = [];
  /** Without: the guest reads nothing. */
  reads = true;
  readonly agent: GuestAgent;
  private readonly reader = new FrameReader();
  private readonly stream = new Duplex({
    read: () => undefined,
    write: (chunk: Buffer, _encoding, done) => {
      if (!this.reads) return;
      this.requests.push(...this.reader.push(chunk));
      done();
    },
  });

  constructor(ready: Buffer | string = '') {
    this.agent = new GuestAgent(this.stream, { env: [], cwd: '/' });
    this.answer(0, ANSWER.ready, ready);
  }

  answer(channel: number, type: number, payload: Buffer | string = ''): void {
    this.send(encodeFrame(channel, type, Buffer.from(payload)));
  }

  send(bytes: Buffer): void {
    this.stream.push(bytes);
  }

  /** The channel of the last request of a kind. */
  channelOf(type: number): number {
    return this.requests.findLast((request) => request.type === type)!.channel;
  }
}

const settled = () => new Promise((resolve) => setImmediate(resolve));
const number = (value: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};

async function withCommand(credit = 1_000) {
  const guest = new HostileGuest();
  await guest.agent.opened();
  const command = new TestCommand(guest.agent, ['any'], { credit, grants: false });
  await settled();
  return { guest, command, channel: guest.channelOf(REQUEST.exec) };
}

test('frames are read the same however their bytes are cut', () => {
  const frames = Array.from({ length: 50 }, (_, i) => ({
    channel: i,
    type: 128 + (i % 8),
    payload: randomBytes((i * 97) % 1_000),
  }));
  const bytes = Buffer.concat(
    frames.map(({ channel, type, payload }) => encodeFrame(channel, type, payload)),
  );
  for (const size of [1, 2, 7, 9, 10, 1_000, 65_536, bytes.length]) {
    const reader = new FrameReader();
    const read: Frame[] = [];
    for (let at = 0; at < bytes.length; at += size) read.push(...reader.push(bytes.subarray(at, at + size)));
    expect(read).toEqual(frames);
  }
});

test('a guest with a longer environment than a command may have is cut off', async () => {
  const usual = new HostileGuest(`\0${'A=1\0'.repeat(16_384)}`);
  await usual.agent.opened();
  expect(usual.agent.environment).toHaveLength(16_384);
  const hostile = new HostileGuest(`\0${'\0'.repeat(16_385)}`);
  await expect(hostile.agent.opened()).rejects.toThrow('ended before it was ready');
  expect(hostile.agent.gone.aborted).toBe(true);
});

test('a frame that is too long cuts the guest off before it arrives', () => {
  expect(() => [...new FrameReader().push(Buffer.from('0100040000000000ff', 'hex'))]).toThrow('262145');
  expect([...new FrameReader().push(Buffer.from('0000040000000000ff', 'hex'))]).toEqual([]);
});

test('random bytes cut the guest off or are ignored', async () => {
  for (let round = 0; round < 200; round++) {
    const { guest, command } = await withCommand();
    for (let i = 0; i < 20; i++) guest.send(randomBytes(1 + Math.floor(Math.random() * 200)));
    await settled();
    guest.agent.close();
    await command.over;
    expect(command.calls.filter((call) => call === 'exited' || call === 'failed')).toHaveLength(1);
  }
});

test('output beyond the credit cuts the guest off', async () => {
  const { guest, command, channel } = await withCommand(1_000);
  guest.answer(channel, ANSWER.stdout, Buffer.alloc(1_000));
  await settled();
  expect([command.size, guest.agent.gone.aborted]).toEqual([1_000, false]);
  guest.answer(channel, ANSWER.stderr, 'x');
  await settled();
  expect(guest.agent.gone.aborted).toBe(true);
  expect(command.calls).toEqual(['stdout', 'failed']);
});

test.each(['', 'x'])('endless output in pieces of "%s" cuts the guest off', async (piece) => {
  const { guest, command, channel } = await withCommand(100_000);
  for (let i = 0; i < 10_000; i++) guest.answer(channel, ANSWER.stdout, piece);
  await settled();
  expect(guest.agent.gone.aborted).toBe(true);
  expect(command.stdout.length).toBeLessThan(400);
});

test('an event that comes once is told once', async () => {
  const { guest, command, channel } = await withCommand();
  for (let i = 0; i < 1_000; i++) {
    guest.answer(channel, ANSWER.started, number(i));
    guest.answer(channel, ANSWER.inputFailed, number(32));
  }
  await settled();
  expect([command.calls, command.pid, command.inputFailures]).toEqual([['started'], 0, [32]]);
  const connection = new TestConnection(guest.agent, '::1', 80);
  await settled();
  const other = guest.channelOf(REQUEST.connect);
  for (const type of [ANSWER.connected, ANSWER.ended]) {
    for (let i = 0; i < 1_000; i++) guest.answer(other, type);
  }
  await settled();
  expect(connection.calls).toEqual(['connected', 'ended']);
});

test('answers on unknown channels, after the end and of unknown types are ignored', async () => {
  const { guest, command, channel } = await withCommand();
  guest.answer(channel, ANSWER.exited, number(0xffff_ff07));
  for (const type of [...Object.values(ANSWER), 0, 1, 255]) {
    guest.answer(channel, type, 'late');
    guest.answer(4_000_000_000, type, 'unknown');
    guest.answer(0, type, 'none');
  }
  await settled();
  expect([command.calls, command.code, guest.agent.gone.aborted]).toEqual([['exited'], 7, false]);
});

test.each(['unknown', 'pong', 'consumed', 'started', 'other'])(
  'endless frames that nobody waits for cut the guest off: %s',
  async (kind) => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    try {
      const { guest, command, channel } = await withCommand();
      void guest.agent.files().stat('/', { follow: true }).catch(String);
      await settled();
      const [at, type] = {
        unknown: [4_000_000_000, ANSWER.stdout] as const,
        pong: [0, ANSWER.pong] as const,
        consumed: [channel, ANSWER.consumed] as const,
        started: [channel, ANSWER.started] as const,
        other: [guest.channelOf(REQUEST.files), ANSWER.started] as const,
      }[kind]!;
      // A pong says that the agent has handled all before.
      if (kind === 'pong') guest.answer(guest.channelOf(REQUEST.files), ANSWER.done, number(2));
      const flood = async (frames: number) => {
        for (let i = 0; i < frames; i++) guest.answer(at, type, number(1));
        await settled();
      };
      for (let round = 0; round < 5; round++) {
        await flood(4_000);
        expect(guest.agent.gone.aborted).toBe(false);
        vi.advanceTimersByTime(5_000);
      }
      await flood(20_000);
      expect(guest.agent.gone.aborted).toBe(true);
      await command.over;
    } finally {
      vi.useRealTimers();
    }
  },
);

test.each(['answers later operations alone', 'answers nothing'])(
  'an operation ends when the guest goes on and %s',
  async (how) => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    try {
      const { guest, command, channel } = await withCommand(1_000_000);
      const stat = errorOf(guest.agent.files().stat('/', { follow: true }));
      const removal = errorOf(guest.agent.files().removeDir('/tmp', { recursive: true }));
      await settled();
      for (let round = 0; round < 20 && !guest.agent.gone.aborted; round++) {
        vi.advanceTimersByTime(5_000);
        await settled();
        guest.answer(channel, ANSWER.stdout, 'still here');
        if (how === 'answers later operations alone') guest.answer(0, ANSWER.pong);
        await settled();
      }
      expect(await Promise.all([stat, removal])).toEqual(Array(2).fill(expect.stringContaining('stopped')));
      await command.over;
    } finally {
      vi.useRealTimers();
    }
  },
);

test('work in the background and a command may take any time', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  try {
    const { guest } = await withCommand();
    const removal = errorOf(guest.agent.files().removeDir('/tmp', { recursive: true }));
    await settled();
    const at = guest.channelOf(REQUEST.files);
    for (let round = 0; round < 100; round++) {
      vi.advanceTimersByTime(5_000);
      await settled();
      guest.answer(0, ANSWER.pong);
      await settled();
    }
    expect(guest.agent.gone.aborted).toBe(false);
    guest.answer(at, ANSWER.done, number(2));
    expect(await removal).toBe('ENOENT');
  } finally {
    vi.useRealTimers();
  }
});

test('input that the guest takes in small pieces does not cut it off', async () => {
  const { guest, command, channel } = await withCommand();
  for (let i = 0; i < 50_000; i++) {
    await command.command.write(Buffer.from('x'));
    guest.answer(channel, ANSWER.consumed, number(1));
  }
  await settled();
  expect(guest.agent.gone.aborted).toBe(false);
});

test('files that have ended send nothing more to the guest', async () => {
  const guest = new HostileGuest();
  await guest.agent.opened();
  const files = guest.agent.files();
  files.end();
  expect(await errorOf(files.remove('/f'))).toContain('has ended');
  expect(await errorOf(files.open('/f', READ))).toContain('has ended');
  await settled();
  expect(guest.requests.map(({ type }) => type)).toEqual([REQUEST.endOwner]);
});

test('payloads that are too short are read as nothing', async () => {
  const { guest, command, channel } = await withCommand();
  guest.answer(channel, ANSWER.started, 'x');
  guest.answer(channel, ANSWER.consumed);
  guest.answer(channel, ANSWER.failed);
  await command.over;
  expect(command.failure).toMatchObject({ kind: 'other', errno: 0 });
  const files = guest.agent.files();
  const answers: [Promise<unknown>, string][] = [
    [files.stat('/', { follow: true }), ''],
    [files.open('/', READ), 'x'],
    [files.readDir(1), 'not a record and no end'],
    [files.read(1, 0n, 10), '12345678901'],
  ];
  await settled();
  const asked = guest.requests.filter(({ type }) => type === REQUEST.files);
  answers.forEach(([, data], i) =>
    guest.answer(asked[i]!.channel, ANSWER.done, Buffer.concat([number(0), Buffer.from(data)])),
  );
  for (const [answer] of answers) expect(await errorOf(answer)).toBe('EIO');
});

test.each(['x'.repeat(2_000), '../../etc/passwd', '..', '.', ''])(
  'a long name, or a path, in a directory is refused: %#',
  async (name) => {
    const guest = new HostileGuest();
    await guest.agent.opened();
    const listed = guest.agent.files().readDir(1);
    await settled();
    guest.answer(guest.channelOf(REQUEST.files), ANSWER.done, `${'\0'.repeat(4 + 36)}${name}\0`);
    await expect(listed).rejects.toMatchObject({ errnoName: 'EIO' });
  },
);

test('input waits for the guest, whatever it acknowledges', async () => {
  const { guest, command, channel } = await withCommand();
  void command.command.write(Buffer.alloc(2_000_000));
  const sent = () =>
    guest.requests
      .filter(({ type }) => type === REQUEST.input)
      .reduce((sum, { payload }) => sum + payload.length, 0);
  await settled();
  expect(sent()).toBe(524_288);
  guest.answer(channel, ANSWER.consumed, number(0xffff_ffff));
  await settled();
  expect(sent()).toBe(2 * 524_288);
});

test('a guest that does not read fills no memory', async () => {
  const { guest, command } = await withCommand();
  guest.reads = false;
  for (let i = 0; i < 10_000_000 && !guest.agent.gone.aborted; i++) command.command.resize(1, 1);
  expect(guest.agent.gone.aborted).toBe(true);
  await command.over;
});

test('a guest that does not answer is cut off when somebody waits for it', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  try {
    const guest = new HostileGuest();
    await guest.agent.opened();
    vi.advanceTimersByTime(600_000);
    expect([guest.agent.gone.aborted, guest.requests]).toEqual([false, []]);
    const answer = errorOf(guest.agent.files().removeDir('/tmp', { recursive: true }));
    vi.advanceTimersByTime(10_000);
    await settled();
    expect(guest.requests.map(({ type }) => type)).toEqual([REQUEST.files, REQUEST.ping]);
    guest.answer(0, ANSWER.pong);
    await settled();
    vi.advanceTimersByTime(20_000);
    expect(guest.agent.gone.aborted).toBe(false);
    vi.advanceTimersByTime(20_000);
    expect(guest.agent.gone.aborted).toBe(true);
    expect(await answer).toContain('stopped');
  } finally {
    vi.useRealTimers();
  }
});

test('a guest that holds back the end of a closed command is cut off', async () => {
  const { guest, command, channel } = await withCommand();
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  try {
    const ended = new TestCommand(guest.agent, ['other']);
    await settled();
    ended.command.close();
    ended.command.close();
    guest.answer(guest.channelOf(REQUEST.exec), ANSWER.exited, number(137));
    await settled();
    vi.advanceTimersByTime(60_000);
    expect([ended.code, guest.agent.gone.aborted]).toEqual([137, false]);
    command.command.close();
    for (let i = 0; i < 100; i++) guest.answer(channel, ANSWER.consumed, number(1));
    vi.advanceTimersByTime(60_000);
    expect(guest.agent.gone.aborted).toBe(true);
    await command.over;
  } finally {
    vi.useRealTimers();
  }
});

test('credit comes back for exactly the output that was granted', () => {
  for (let round = 0; round < 300; round++) {
    const initial = 1_000 + Math.floor(Math.random() * 100_000);
    const credit = new OutputCredit(initial);
    /** The side of the guest, with arithmetic of its own. */
    let own = initial;
    const unread: number[] = [];
    for (let i = 0; i < 500; i++) {
      if (own > 0 && Math.random() < 0.6) {
        const bytes = 1 + Math.floor(Math.random() * Math.min(own, Math.random() < 0.5 ? 10 : 32_768));
        credit.spend(bytes);
        own -= bytes < 256 ? 256 : bytes;
        unread.push(bytes);
      } else if (unread.length > 0) own += credit.grant(unread.shift()!);
    }
    while (unread.length > 0) own += credit.grant(unread.shift()!);
    expect(own).toBe(initial);
  }
});
