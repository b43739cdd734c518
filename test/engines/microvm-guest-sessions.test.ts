import { Buffer } from 'node:buffer';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectAgent } from '../../src/engines/microvm/agent-session.js';
import type { GuestAgent } from '../../src/guest/agent.js';
import { encodeCommand } from '../../src/guest/command.js';
import { REQUEST } from '../../src/guest/protocol.js';
import { encodeFrame } from '../../src/guest/wire.js';
import { sleep } from '../../src/lib/sleep.js';
import { readAll, run, sh, TestCommand, WRITE } from '../support/guest.js';
import { startMachine, type Machine } from '../support/microvm/machine.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { until } from '../support/polling.js';

/** The number of agents. */
const AGENTS = 'cat /proc/[0-9]*/comm 2>/dev/null | grep -cx agent';
const DEFAULTS = { env: ['PATH=/bin'], cwd: '/' };

describeMicrovm('the port of the agent of a virtual machine', () => {
  let machine: Machine;
  let guest: GuestAgent | undefined;
  beforeAll(async () => {
    machine = await startMachine();
  });
  afterAll(async () => {
    guest?.close();
    await machine?.kill();
  });

  async function open(): Promise<GuestAgent> {
    guest?.close();
    return (guest = await connectAgent(machine.agentSocket, DEFAULTS));
  }

  /** A client that does the handshake by hand, and then writes what it is told. */
  async function openRaw(): Promise<{ socket: Socket; mark: Buffer }> {
    guest?.close();
    const socket = connect(machine.agentSocket);
    const key = randomBytes(16);
    const hello = Buffer.from('sandkeep session');
    socket.write(Buffer.concat([hello, key, key.map((byte, at) => byte ^ hello[at]!)]));
    const welcome = Buffer.concat([Buffer.from('sandkeep started'), key]);
    let got: Buffer = Buffer.alloc(0);
    while (!got.includes(welcome)) got = Buffer.concat([got, (await once(socket, 'data'))[0] as Buffer]);
    return { socket, mark: key.subarray(0, 8) };
  }

  function commandFrame(script: string): Buffer {
    const spec = encodeCommand(
      {
        args: ['sh', '-c', script],
        env: [],
        cwd: null,
        user: null,
        terminal: null,
        rlimits: [],
        credit: 1 << 20,
      },
      DEFAULTS,
      0,
    );
    if ('kind' in spec) throw new Error(spec.message);
    return encodeFrame(7, REQUEST.exec, spec.bytes);
  }

  test('serves a client after others that left in the middle of a frame', async () => {
    const seed = Number(process.env['SANDKEEP_TEST_SEED'] ?? Date.now() % 1_000_000);
    console.log(`SANDKEEP_TEST_SEED=${seed}`);
    let state = seed;
    const random = (below: number) => (state = (state * 1_103_515_245 + 12_345) % 2_147_483_648) % below;
    for (let round = 0; round < 15; round++) {
      const { socket, mark } = await openRaw();
      const script = `touch /tmp/cut; : ${'x'.repeat(random(3) * 20_000)}`;
      const frame = commandFrame(script);
      const all = Buffer.concat([frame, mark]);
      // Short of its end by less than a hello, for example, which completes it.
      const missing = 1 + (random(2) === 0 ? random(64) : random(all.length - 1));
      socket.write(all.subarray(0, all.length - missing));
      if (random(2) === 0) await sleep(random(50));
      socket.destroy();
      const next = await open();
      expect((await run(next, ['echo', `round ${round}`])).out).toBe(`round ${round}\n`);
    }
    expect(await sh(await open(), 'ls /tmp')).toBe('');
  });

  // The bytes of a client may come before the news that it is there.
  test('serves many clients, one after another', async () => {
    for (let round = 0; round < 40; round++) {
      expect((await run(await open(), ['echo', `${round}`])).out).toBe(`${round}\n`);
      guest!.close();
      await sleep(30);
    }
  });

  test('serves a client after others that left during the handshake', async () => {
    const hello = Buffer.concat([Buffer.from('sandkeep session'), randomBytes(32)]);
    for (const bytes of [0, 1, 15, 16, 31, 47, 48]) {
      const socket = connect(machine.agentSocket);
      await once(socket, 'connect');
      socket.write(Buffer.concat([randomBytes(bytes * 1000), hello.subarray(0, bytes)]));
      await sleep(20);
      socket.destroy();
      expect(await sh(await open(), 'echo served')).toBe('served');
    }
  });

  test('passes no byte of an earlier agent on', async () => {
    for (let round = 0; round < 5; round++) {
      const flood = new TestCommand(await open(), ['yes', 'old'], { credit: 4_000_000, grants: false });
      await until(
        async () => Promise.resolve(flood.size),
        (size) => size > 100_000,
      );
      expect(await sh(await open(), 'echo new')).toBe('new');
    }
  });

  test('ends the commands of a client that is gone', async () => {
    const first = new TestCommand(await open(), ['sh', '-c', 'echo $$; sleep 1000']);
    await first.says('\n');
    const pid = first.out.trim();
    const next = await open();
    await until(
      () => sh(next, `[ -e /proc/${pid} ] && echo there || echo gone`),
      (state) => state === 'gone',
    );
    const left = await until(
      () => sh(next, AGENTS),
      (count) => count === '1',
    );
    expect(left).toBe('1');
  });

  test('tells a client at once that its agent was killed', async () => {
    for (const script of ['kill -9 $PPID', 'yes & kill -9 $PPID']) {
      const timeOfOne = async () => {
        const agent = await open();
        const begun = Date.now();
        const killer = new TestCommand(agent, ['sh', '-c', script], { credit: 10_000 });
        await killer.over;
        expect(killer.failure?.message ?? killer.code).toBeDefined();
        await until(
          async () => Promise.resolve(agent.gone.aborted),
          (isGone) => isGone,
        );
        return Date.now() - begun;
      };
      // The watch of the service needs half a minute. A busy machine may take as long once.
      await until(timeOfOne, (millis) => millis < 20_000);
      expect(await sh(await open(), 'echo again')).toBe('again');
    }
  });

  test('refuses bytes without a session, and frames without its mark', async () => {
    const { socket } = await openRaw();
    const closed = once(socket, 'close');
    socket.on('data', () => undefined);
    socket.write(Buffer.concat([commandFrame('touch /tmp/forged'), randomBytes(8)]));
    await sleep(200);
    socket.write(randomBytes(600_000));
    await sleep(200);
    socket.destroy();
    await closed;
    expect(await sh(await open(), 'ls /tmp')).toBe('');
  });

  test('cannot be taken by root of the sandbox, as the other ports', async () => {
    const take = 'for port in /dev/vport*; do cat <$port; echo forged >$port; done';
    const taker = await run(await open(), ['sh', '-c', take]);
    expect(taker.out).toBe('');
    expect(taker.err.match(/Device or resource busy/g)).toHaveLength(6);
    expect(machine.lines).toEqual(['clock', 'ready']);
  });

  test('carries 32 MiB in each direction at once without a change', async () => {
    const agent = await open();
    const files = agent.files();
    const [up, down] = [randomBytes(32 << 20), randomBytes(32 << 20)];
    const handle = await files.open('/tmp/down', WRITE);
    for (let at = 0; at < down.length; at += 131_072)
      await files.write(handle, BigInt(at), down.subarray(at, at + 131_072));
    await files.close(handle);
    const [received, sum] = await Promise.all([
      readAll(files, '/tmp/down'),
      run(agent, ['sha256sum'], { input: up }),
    ]);
    expect(received.equals(down)).toBe(true);
    expect(sum.out.split(' ')[0]).toBe(createHash('sha256').update(up).digest('hex'));
    files.end();
  });
});
