import { once } from 'node:events';
import {
  appendFileSync,
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
  truncateSync,
} from 'node:fs';
import { createSocket } from 'node:dgram';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { Changes } from '../../src/engines/microvm/changes.js';
import { holdingOf, readHeld } from '../../src/engines/microvm/holdings.js';
import { followOutput } from '../../src/engines/microvm/output-log.js';
import { placesOf } from '../../src/engines/microvm/places.js';
import { isAlive } from '../../src/engines/microvm/processes.js';
import { askUse, connectIn, requestSave, requestStop } from '../../src/engines/microvm/supervisor.js';
import { untilReady } from '../../src/engines/microvm/until-ready.js';
import { microsOf, now } from '../../src/lib/instant.js';
import {
  describeSupervisor,
  READY,
  START,
  supervise,
  superviseAgain,
  USER,
  type Supervised,
} from '../support/fake-monitor.js';
import { until } from '../support/polling.js';

describeSupervisor('the supervisor of a virtual machine', () => {
  async function outputOf({ places }: Supervised): Promise<string> {
    const query = { sources: new Set(['stdout', 'stderr'] as const), after: {} };
    let text = '';
    for await (const lines of followOutput(places, query, async () => false))
      for (const line of lines) text += `${line.source}: ${line.text}`;
    return text;
  }

  test('keeps other programs from the published ports of the run, until it ends', async () => {
    const port = (protocol: 'tcp' | 'udp') => ({
      guest_port: 1,
      host_port: 31_010,
      host_bind: '127.0.0.2',
      protocol,
    });
    const vm = supervise(`${READY} read -r word <&7`, { ports: [port('tcp'), port('udp')] });
    await vm.untilRecord(({ readyAt }) => readyAt !== undefined);
    for (const protocol of ['tcp', 'udp'] as const)
      expect(await bindError(protocol, 31_010), protocol).toBe('EADDRINUSE');
    // Another supervisor ends at once.
    const second = supervise(READY, { ports: [port('udp')] });
    await second.ended;
    expect(await second.record()).toBeUndefined();
    await requestStop(vm.places.run, 0);
    await vm.ended;
    for (const protocol of ['tcp', 'udp'] as const)
      expect(await bindError(protocol, 31_010), protocol).toBeUndefined();
  });

  test('keeps the record of a run: its start, its command, its exit, its end', async () => {
    const before = microsOf(now());
    const vm = supervise(`${READY}
      printf '\\1\\0\\3\\0one\\2\\0\\4\\0two\\n' >&8
      echo 'end 3 0 1' >&7
      read -r word <&7
      echo "exit 7 2" >&7
      echo '{"timestamp": {}, "event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-shutdown"}}' >&6`);
    const running = await vm.untilRecord(({ command }) => command !== undefined);
    expect(running.end).toBeUndefined();
    expect([isAlive(running), running.command]).toMatchObject([
      true,
      { code: 3, signal: null, outOfMemory: true },
    ]);
    expect(await requestStop(vm.places.run, 30_000)).toBe(true);
    const after = microsOf(now());
    await vm.ended;
    const record = (await vm.record())!;
    expect(record.exit).toEqual({ code: 7, outOfMemory: false });
    expect(record.end).toMatchObject({ status: 0, stop: 'asked', shutdown: 'guest' });
    const times = [
      before,
      record.startedAt!,
      record.readyAt!,
      record.command!.endedAt,
      record.end!.endedAt,
      after,
    ];
    expect(times).toEqual(times.toSorted((a, b) => (a < b ? -1 : 1)));
    expect(await outputOf(vm)).toBe('stdout: onestderr: two\n');
    expect(isAlive(record)).toBe(false);
    expect(readdirSync(vm.places.run)).not.toContain('supervisor.sock');
  });

  test('gives the monitor a user of its own, no right, no network and no descriptor of others', async () => {
    const vm = supervise(`${START}
      grep -E '^(Uid|Gid|Groups|Cap...|NoNewPrivs)' /proc/self/status
      ls -m /proc/$$/fd
      grep -c : /proc/self/net/dev
      kill -0 $PPID 2>&1; touch /proc/self/cwd/mine 2>&1; ls . 2>&1
      echo "SECRET=$HOME"`);
    const { end } = await vm.untilRecord((record) => record.end !== undefined);
    expect(end!.status).toBe(0);
    const text = vm.console();
    expect(text).toMatch(new RegExp(`^Uid:(\\s+${USER}){4}$`, 'm'));
    expect(text).toMatch(new RegExp(`^Gid:(\\s+${USER}){4}$`, 'm'));
    expect(text).toMatch(/^Groups:\s*$/m);
    expect(text.match(/^Cap\w+:\s+0+$/gm)).toHaveLength(5);
    expect(text).toMatch(/^NoNewPrivs:\s+1$/m);
    const [descriptors] = /^\d+(, \d+)+$/m.exec(text)!;
    const numbers = descriptors.split(', ').map(Number);
    // Those that the service passes, which are none here, begin at 6. The last is the socket of agents.
    expect(numbers.filter((fd) => fd < 200)).toEqual([0, 1, 10, 2, 6, 7, 8, 9]);
    // The loopback device alone.
    expect(text).toMatch(/^1$/m);
    expect(text).toContain('Operation not permitted');
    expect(text.match(/Permission denied/g)!.length).toBeGreaterThanOrEqual(2);
    expect(text).toContain('SECRET=\n');
  });

  test('lets the monitor open no file of the machine that all users may read', async () => {
    const vm = supervise(`${START}
      for path in /etc/passwd /etc/shells /etc /tmp /dev/full /dev/null; do
        (: < $path) 2>/dev/null && echo "opens $path"
      done
      (: > /tmp/sandkeep-written) 2>/dev/null && echo 'writes to /tmp'
      echo tried`);
    const { end } = await vm.untilRecord((record) => record.end !== undefined);
    expect(end!.status).toBe(0);
    expect(vm.console()).toBe('opens /dev/null\ntried\n');
  });

  test('lets the monitor write no file beyond the limit, and tells it so', async () => {
    const path = join(mkdtempSync(join(tmpdir(), 'sandkeep-disk-')), 'disk');
    const disk = openSync(path, 'w+', 0o600);
    try {
      // The disk is the first descriptor, and the ports follow.
      const script = `${START.replaceAll('&6', '&7')} head -c 3000000 /dev/zero >&6`;
      const vm = supervise(script, { files: [disk], diskFileMib: 2 });
      await vm.untilRecord((record) => record.end !== undefined);
      expect(statSync(path).size).toBe(2 * 1024 * 1024);
      expect(vm.console()).toContain('File too large');
    } finally {
      closeSync(disk);
      rmSync(dirname(path), { recursive: true });
    }
  });

  test('takes nothing of a hostile sandbox but the first words of each kind', async () => {
    const vm = supervise(`${START}
      head -c 20000 /dev/zero >&7; echo >&7
      head -c 20000 /dev/zero | tr '\\0' 'e' >&7; echo >&7
      printf 'end 300 0 0\\nend 1 2\\nend 1 0 3\\nend -1 0 0\\nend 99999999999999999999 0 0\\nend  1 0 0\\n' >&7
      printf 'exit 256 0\\nexit\\nexit 1\\nexit 1 x\\nuse\\nuse \\nfailed \\n\\0\\n\\n' >&7
      printf 'failed one\\001\\377 word\\nfailed another\\nready\\nready\\n' >&7
      printf 'end 1 9 0\\nend 2 0 0\\nexit 3 1\\nexit 0 0\\n' >&7
      head -c 500 /dev/urandom | tr '\\0' 'x' >&6; echo >&6
      echo '{"event": "RESUME"}{"event": "RESUME"}' >&6
      sleep 1`);
    const record = await vm.untilRecord(({ end }) => end !== undefined);
    expect(record.command).toMatchObject({ code: 1, signal: 9, outOfMemory: false });
    expect(record.exit).toEqual({ code: 3, outOfMemory: true });
    expect(record.failed).toBe('one?? word');
    expect(statSync(vm.places.record).size).toBeLessThan(1_024);
  });

  test('says the use of a hostile sandbox in words of its own', async () => {
    const vm = supervise(`${READY}
      for answer in 'use \\rheld' 'use 1 2' 'use 1 2 3 \\rheld' 'use 4 5 6\\r'  'use 4 5 6'; do
        read -r word <&7
        printf "$answer\\n" >&7
      done
      read -r word <&7`);
    await vm.untilRecord(({ readyAt }) => readyAt !== undefined);
    const socket = await connectIn(vm.places.run, 'supervisor.sock');
    let heard = '';
    socket.on('data', (data) => (heard += String(data)));
    const answers: string[] = [];
    // An answer that is dropped has no sign: the next one ends the wait for it.
    for (let asked = 0; asked < 5; asked += 1) {
      socket.write('use\n');
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    await until(
      async () => heard,
      (text) => text.includes('use 4 5 6\n'),
    );
    answers.push(...heard.split('\n'));
    expect(answers).toEqual(['use 1 2 3', 'use 4 5 6', '']);
    socket.destroy();
    await requestStop(vm.places.run, 0);
  });

  test('drops the output of a sandbox after a frame that is none, and reads on', async () => {
    const vm = supervise(`${READY}
      printf '\\1\\0\\5\\0good\\n' >&8
      printf '\\3\\0\\5\\0evil\\n\\1\\0\\5\\0late\\n' >&8
      head -c 2000000 /dev/zero >&8
      sleep 0.2`);
    const record = await vm.untilRecord(({ end }) => end !== undefined);
    expect(record.end!.status).toBe(0);
    expect(await outputOf(vm)).toBe('stdout: good\n');
  });

  test.each([
    ['half a piece', (file: string) => truncateSync(file, statSync(file).size - 1)],
    ['half a header', (file: string) => appendFileSync(file, Buffer.alloc(7, 1))],
    ['zeros', (file: string) => truncateSync(file, statSync(file).size + 100_000)],
  ])('continues the output after a power loss that left %s', async (left, damage) => {
    // Enough for several reads.
    const script = `${READY} for i in {1..3000}; do printf '\\1\\0\\4\\0%04d\\2\\0\\62\\0%050d' $i $i; done >&8`;
    const vm = supervise(script);
    await vm.untilRecord(({ end }) => end !== undefined);
    await vm.ended;
    const whole = await outputOf(vm);
    expect(whole).toContain('3000');
    damage(vm.places.output);
    rmSync(vm.places.record);
    const next = superviseAgain(vm, `${READY} printf '\\1\\0\\5\\0next\\n' >&8`);
    await next.untilRecord(({ end }) => end !== undefined);
    await next.ended;
    const lost = left === 'half a piece' ? `stderr: ${'0'.repeat(46)}3000` : '';
    expect(whole.endsWith(lost)).toBe(true);
    expect(await outputOf(vm)).toBe(`${whole.slice(0, whole.length - lost.length)}stdout: next\n`);
  });

  test('bounds the disk for a flood of output, and loses none of the latest', async () => {
    const vm = supervise(
      `${READY}
      line=$(head -c 995 /dev/zero | tr '\\0' 'x')
      for i in {1000..4999}; do printf '\\1\\0\\350\\3%s%s\\n' $i "$line"; done >&8`,
      { outputFileBytes: 1_000_000 },
    );
    await vm.untilRecord(({ end }) => end !== undefined);
    const sizes = [vm.places.output, vm.places.olderOutput].map((path) => statSync(path).size);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(1_000_000);
    const numbers = [...(await outputOf(vm)).matchAll(/stdout: (\d{4})x/g)].map(([, number]) =>
      Number(number),
    );
    expect(numbers.length).toBeGreaterThan(980);
    expect(numbers).toEqual(numbers.map((_, index) => 5_000 - numbers.length + index));
  });

  test('bounds an endless console, and holds up nobody for it', async () => {
    const vm = supervise(`${READY}
      head -c 400000 /dev/zero | tr '\\0' 'c' >&9 &
      head -c 400000 /dev/zero | tr '\\0' 'e'
      wait
      echo last`);
    await vm.untilRecord(({ end }) => end !== undefined);
    expect(vm.console().length).toBeLessThanOrEqual(128 * 1024);
    expect(vm.console()).toMatch(/last\n$/);
  });

  test('stops a monitor that ignores every word, after its grace', async () => {
    const vm = supervise(`${READY} trap '' TERM INT HUP; while :; do sleep 0.2; done`);
    await vm.untilRecord(({ readyAt }) => readyAt !== undefined);
    expect(await requestStop(vm.places.run, 100)).toBe(true);
    const { end } = (await vm.record())!;
    expect(end).toMatchObject({ status: 9, stop: 'forced' });
  });

  test('asks the sandbox for its use, and waits for no silent one', async () => {
    const answers = supervise(
      `${READY} while read -r word <&7; do [ "$word" = use ] && echo 'use 12 34 5' >&7; done`,
    );
    await answers.untilRecord(({ readyAt }) => readyAt !== undefined);
    // The answer of a busy machine may come late.
    const use = await until(
      () => askUse(answers.places.run),
      (found) => found !== undefined,
      30_000,
    );
    expect(use).toEqual({ cpuMicros: 12, memoryBytes: 34, processes: 5 });
    const silent = supervise(`${READY} sleep 60`);
    await silent.untilRecord(({ readyAt }) => readyAt !== undefined);
    expect(await askUse(silent.places.run)).toBeUndefined();
  });

  test('asks a sandbox that never ends its answer, and does not wait for its end', async () => {
    const vm = supervise(`${READY} while :; do echo 'use x' >&7; sleep 0.1; done`);
    await vm.untilRecord(({ readyAt }) => readyAt !== undefined);
    expect(await askUse(vm.places.run)).toBeUndefined();
  });

  test.each([
    ['slow', 'use x\n', 100],
    ['fast', 'use x\n'.repeat(10_000), 1],
  ])('gives up a supervisor with endless %s answers', async (_, words, pauseMs) => {
    const folder = mkdtempSync(join(tmpdir(), 'sandkeep-supervisor-'));
    const server = createServer((socket) => {
      const timer = setInterval(() => socket.write(words), pauseMs);
      socket.on('close', () => clearInterval(timer)).on('error', () => undefined);
    });
    await new Promise<void>((resolve) => void server.listen(join(folder, 'supervisor.sock'), resolve));
    try {
      expect(await askUse(folder)).toBeUndefined();
    } finally {
      server.close();
      rmSync(folder, { recursive: true });
    }
  });

  test('passes on the use of a sandbox once for a request, and never without one', async () => {
    const vm = supervise(`${READY}
      echo 'use 1 1 1' >&7
      while read -r word <&7; do [ "$word" = use ] && printf 'use 2 2 2\nuse 3 3 3\nready\n' >&7; done`);
    await vm.untilRecord(({ readyAt }) => readyAt !== undefined);
    const socket = await connectIn(vm.places.run, 'supervisor.sock');
    let text = '';
    socket.on('error', () => undefined).on('data', (chunk) => (text += String(chunk)));
    const closed = once(socket, 'close');
    socket.write('use\n');
    await until(
      async () => text,
      (found) => found !== '',
      30_000,
    );
    socket.write('stop 500\n');
    await closed;
    expect(text).toBe('use 2 2 2\n');
  });

  test('ends a monitor that goes on after the end of the machine', async () => {
    const vm = supervise(`${READY} trap '' TERM INT HUP
      echo 'exit 7 0' >&7
      sleep 0.2
      echo '{"timestamp": {}, "event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-shutdown"}}' >&6
      while :; do sleep 0.2; done`);
    const record = await vm.untilRecord(({ end }) => end !== undefined);
    expect(record.exit).toEqual({ code: 7, outOfMemory: false });
    expect(record.end).toMatchObject({ status: 9, stop: 'none', shutdown: 'guest' });
  });

  test('is waited for by a start that is given up, until its first record', async () => {
    const vm = supervise(`${READY} sleep 600`);
    const changes = new Changes(vm.directory);
    try {
      const signal = AbortSignal.abort();
      await untilReady({ changes, isEmulated: true }, vm.places, { signal, ended: vm.ended });
      expect(isAlive((await vm.record())!)).toBe(true);
      const folder = placesOf(vm.directory, 'none');
      await untilReady({ changes, isEmulated: true }, folder, { signal, ended: Promise.resolve() });
    } finally {
      changes.close();
    }
  });

  test('tells the sandbox the time when it asks, and after its processors stood still', async () => {
    const vm = supervise(`${READY}
      echo clock >&7
      read -r first <&7
      echo '{"event": "STOP"}' >&6
      read -r resume <&6
      echo '{"event": "RESUME"}' >&6
      read -r second <&7
      echo "$first, $resume, $second"`);
    await vm.untilRecord(({ end }) => end !== undefined);
    const [, first, second] = /^clock (\d{19}), .*"cont".*, clock (\d{19})$/m.exec(vm.console())!;
    for (const nanos of [first, second])
      expect(Math.abs(Number(BigInt(nanos!) / 1_000_000n) - Date.now())).toBeLessThan(120_000);
  });

  test('has room for its clients only, and reads no endless request', async () => {
    const vm = supervise(`${READY} sleep 600`);
    await vm.untilRecord(({ readyAt }) => readyAt !== undefined);
    const sockets = await Promise.all(
      Array.from({ length: 8 }, () => connectIn(vm.places.run, 'supervisor.sock')),
    );
    for (const socket of sockets) socket.on('error', () => undefined).write('x'.repeat(100_000));
    const ninth = await connectIn(vm.places.run, 'supervisor.sock');
    ninth.on('error', () => undefined).resume();
    await new Promise((resolve) => ninth.once('close', resolve));
    sockets[0]!.write('\nstop 0\n');
    const record = await vm.untilRecord(({ end }) => end !== undefined);
    expect(record.end!.stop).toBe('forced');
    for (const socket of sockets) socket.destroy();
  });

  test('lets no second supervisor into its directory', async () => {
    const vm = supervise(`${READY} sleep 600`);
    const first = await vm.untilRecord(({ readyAt }) => readyAt !== undefined);
    const second = superviseAgain(vm, `${READY} sleep 600`);
    await second.ended;
    expect(await vm.record()).toEqual(first);
    expect(isAlive(first)).toBe(true);
  });

  test.each([
    [
      'refuses',
      `echo '{"error": {"class": "GenericError", "desc": "the disk is \\u0007 vmdk"}}' >&6`,
      'vmdk',
    ],
    ['fails', `echo '{"event": "MIGRATION", "data": {"status": "failed"}}' >&6`, 'cannot write it'],
    ['writes nothing', `echo '{"event": "MIGRATION", "data": {"status": "completed"}}' >&6`, 'does not fit'],
    ['writes too much', undefined, 'does not fit'],
  ])('lets the sandbox run on when its monitor %s at a save', async (_, answer, words) => {
    const vm = supervise(`${READY}
      read -r stop <&6; echo '{"event": "STOP"}' >&6
      while read -r line <&6; do
        echo "$line"
        case "$line" in *'"migrate"'*) ${answer ?? 'echo too much'} ;; esac
      done`);
    await vm.untilRecord(({ readyAt }) => readyAt !== undefined);
    const isLarge = answer === undefined;
    const saving = requestSave(vm.places.run, isLarge ? 1_000_000 : 1_000_000_000);
    if (isLarge) {
      await until(
        async () => Promise.resolve(vm.console()),
        (text) => text.includes('too much'),
      );
      appendFileSync(join(vm.places.run, 'memory'), Buffer.alloc(3_000_000));
    }
    await expect(saving).rejects.toThrow(words);
    const console = await until(
      async () => Promise.resolve(vm.console()),
      (text) => text.includes('"cont"'),
    );
    expect(console).toContain('getfd');
    await until(
      async () => Promise.resolve(readdirSync(vm.places.run)),
      (files) => !files.includes('memory'),
    );
    const record = (await vm.record())!;
    expect([record.end, record.savedBytes, isAlive(record)]).toEqual([undefined, undefined, true]);
  });

  test('killed, takes its monitor with it, and the run ends at its last sign of life', async () => {
    const vm = supervise(`${READY} sleep 600`);
    const record = await vm.untilRecord(({ readyAt }) => readyAt !== undefined);
    const image = { env: [], entrypoint: [], user: '', workdir: '', stopSignal: null };
    const ids = { orgId: 'o', sandboxId: 's', firstRunId: 'r', imageDigest: 'd', image };
    const held = {
      places: vm.places,
      identity: ids,
      run: { runId: 'r', user: USER, workdir: '/' },
      record,
      saved: undefined,
    };
    expect(await holdingOf({ ...held, isAlive: true })).toMatchObject({ state: 'running', finishedAt: null });
    process.kill(record.supervisor.pid, 'SIGKILL');
    const killedAt = microsOf(now());
    await until(
      async () => isAlive(record),
      (alive) => !alive,
      30_000,
    );
    await until(
      async () => Promise.resolve(existsSync(`/proc/${record.monitor!.pid}/cwd`)),
      (exists) => !exists,
    );
    const holding = await holdingOf({ ...held, isAlive: false });
    expect(holding).toMatchObject({ state: 'exited', exit: { code: 137, outOfMemory: false } });
    const finishedAt = microsOf(holding.finishedAt!);
    expect(finishedAt).toBeGreaterThanOrEqual(record.startedAt!);
    // Nothing is billed that did not run.
    expect(finishedAt).toBeLessThanOrEqual(killedAt + 1_000_000n);
  });

  test('records the end of a monitor that was killed', async () => {
    const vm = supervise(`${READY} sleep 600`);
    const { monitor } = await vm.untilRecord(({ readyAt }) => readyAt !== undefined);
    process.kill(monitor!.pid, 'SIGKILL');
    const record = await vm.untilRecord(({ end }) => end !== undefined);
    expect(record.end).toMatchObject({ status: 9, stop: 'none', shutdown: 'none' });
    expect(record.end!.endedAt).toBeGreaterThan(record.readyAt!);
  });

  test('keeps the reason of a monitor that cannot be started, for the operator', async () => {
    const vm = supervise('', { monitor: ['/no/such/monitor'] });
    const record = await vm.untilRecord(({ end }) => end !== undefined);
    expect(record.startedAt).toBeUndefined();
    expect(vm.console()).toContain('supervise: cannot start the monitor');
    expect(await readHeld(vm.directory, 'unknown')).toBeUndefined();
  });
});

/** The code of the error. Undefined: the port is free. */
async function bindError(protocol: 'tcp' | 'udp', port: number): Promise<string | undefined> {
  const opened =
    protocol === 'tcp'
      ? createServer().listen(port, '127.0.0.2')
      : createSocket('udp4').bind(port, '127.0.0.2');
  try {
    await once(opened, 'listening');
    return undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code;
  } finally {
    opened.close();
  }
}
