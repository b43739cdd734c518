import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { VERSION } from '../../../src/lib/version.js';
import { encodeEnvelope } from '../../../src/sandboxes/agent/envelope.js';
import { AgentClient } from '../../support/agent-client.js';
import { SENT } from '../../support/captured-frames.js';
import { describeDocker, execIn, makeBusybox } from '../../support/docker.js';
import { startInside, type Inside } from '../../support/inside.js';
import { until } from '../../support/polling.js';

const WITH_WORKDIR = 'sandkeep-test:workdir';

describeDocker('commands on the agent channel', () => {
  let inside: Inside;
  let id: string;
  let agent: AgentClient;
  beforeAll(async () => {
    makeBusybox(WITH_WORKDIR, { change: 'WORKDIR /etc' });
    inside = await startInside();
    id = await inside.start('box');
  });
  afterAll(() => inside.close());
  beforeEach(async () => {
    agent?.close();
    agent = await AgentClient.open(inside.client, id);
  });

  const processes = () => execIn(id, 'busybox', 'ps');
  const code = async (session: number) => (await agent.outcome(session)).last.payload.code;

  test('follow the range of ids and the message that the agent is ready', async () => {
    expect(agent.prologue!.toString('hex')).toBe('0000000101ffffff');
    const other = await AgentClient.open(inside.client, id);
    expect(other.bytes).toBe(8 + encodeEnvelope(0, 0, 'core.ready', ready()).length);
    other.close();
  });

  test('run as the clients ask for them, byte by byte, with any generation', async () => {
    const [plain, terminal, rlimits, shell] = SENT.map(({ hex }) => Buffer.from(hex, 'hex'));
    for (const byte of plain!) agent.write(Buffer.from([byte]));
    const input = encodeEnvelope(1, 0, 'core.exec.stdin', { data: Buffer.from('hello') });
    const end = encodeEnvelope(1, 0, 'core.exec.stdin', { data: Buffer.alloc(0) });
    agent.write(Buffer.concat([input, end, end]));
    expect(await agent.outcome(1)).toMatchObject({
      stdout: 'hello',
      stderr: '',
      last: { flags: 1, payload: { code: 0 } },
    });
    agent.write(rlimits!);
    expect(await agent.outcome(1)).toMatchObject({ stdout: '100\n' });
    for (const request of [terminal!, shell!]) {
      agent.write(request);
      agent.stdin(1, 'busybox stty size; exit 5\n');
      expect(await agent.outcome(1)).toMatchObject({
        stdout: expect.stringContaining('\r\n30 100\r\n'),
        last: { payload: { code: 5 } },
      });
    }
  });

  test('take what an official SDK fills in for "none named", and a directory or user that was named', async () => {
    const own = await inside.start('own', { runtime: { workdir: '/tmp', user: '1000:1000' } });
    const bare = await inside.start('bare', { image: { type: 'oci', reference: WITH_WORKDIR } });
    const shown = async (userAgent: string, sandboxId: string, more: object) => {
      const client = await AgentClient.open(inside.client, sandboxId, { userAgent });
      const { stdout, last } = await client.outcome(client.sh('pwd; busybox id -u', more));
      client.close();
      return last.payload.message ?? stdout;
    };
    const [sdk, other] = ['microsandbox-sdk/0.7.11', 'another/1.0'];
    // A user without CAP_SETUID cannot ask for any user, also not for its own.
    expect(await shown(sdk, own, { cwd: '/tmp', user: '1000:1000' })).toBe('/tmp\n1000\n');
    expect(await shown(sdk, own, { cwd: '/', user: null })).toBe('/\n1000\n');
    expect(await shown(sdk, own, { cwd: null, user: 'root' })).toContain('Operation not permitted');
    expect(await shown(sdk, bare, { cwd: '/' })).toBe('/etc\n0\n');
    expect(await shown(sdk, bare, { cwd: '/.' })).toBe('/\n0\n');
    expect(await shown(other, bare, { cwd: '/' })).toBe('/\n0\n');
  });

  test('tell the process id first, and the exit after all output', async () => {
    const messages = await agent.all(agent.sh('echo out; echo err >&2; exit 3'));
    expect(messages[0]).toMatchObject({
      type: 'core.exec.started',
      flags: 0,
      payload: { pid: expect.any(Number) },
    });
    expect(messages.map(({ type }) => type).toSorted()).toEqual([
      'core.exec.exited',
      'core.exec.started',
      'core.exec.stderr',
      'core.exec.stdout',
    ]);
    expect(messages.at(-1)).toMatchObject({ type: 'core.exec.exited', flags: 1, payload: { code: 3 } });
    const lines = await agent.outcome(agent.sh('busybox seq 100000; exit 4'));
    expect(lines.stdout.split('\n')[99_999]).toBe('100000');
    expect(lines.last.payload.code).toBe(4);
  });

  test('take input, its end, sizes and signals that arrive before they have started', async () => {
    const lines = agent.exec('cat');
    for (let part = 0; part < 100; part++) agent.stdin(lines, `${part}\n`);
    agent.stdin(lines);
    expect((await agent.outcome(lines)).stdout.split('\n')).toHaveLength(101);
    const terminal = agent.sh('read x; busybox stty size', { tty: true });
    agent.send(terminal, 'core.exec.resize', { rows: 40, cols: 120 });
    agent.send(terminal, 'core.exec.resize', { rows: 0, cols: 0 });
    agent.stdin(terminal, '\n');
    expect((await agent.outcome(terminal)).stdout).toContain('40 120');
    const killed = agent.exec('sleep', ['60']);
    agent.send(killed, 'core.exec.signal', { signal: 9 });
    expect(await code(killed)).toBe(137);
  });

  test('end by a signal or Ctrl-C with 128 and its number, with their children', async () => {
    const group = agent.sh('sleep 71 & sleep 71');
    await agent.next(group, 'core.exec.started');
    agent.send(group, 'core.exec.signal', { signal: 15 });
    expect(await code(group)).toBe(143);
    expect(await processes()).not.toContain('sleep 71');
    const terminal = agent.sh('echo up; cat', { tty: true });
    await agent.next(terminal, 'core.exec.stdout');
    agent.stdin(terminal, '\u0003');
    expect(await code(terminal)).toBe(130);
  });

  test('ignore late input and messages for sessions that there are not', async () => {
    const early = agent.exec('true');
    expect(await code(early)).toBe(0);
    for (const type of ['core.exec.stdin', 'core.fs.data', 'core.tcp.data']) {
      agent.send(early, type, { data: Buffer.from('late') });
      agent.send(77, type, { data: Buffer.alloc(0) });
    }
    agent.send(early, 'core.exec.signal', { signal: 9 });
    expect(await code(agent.exec('true'))).toBe(0);
    expect(agent.messages).toEqual([]);
  });

  test('run at once on one connection, each with its own input and output', async () => {
    const sessions = Array.from({ length: 60 }, () => agent.exec('cat'));
    for (const session of sessions) agent.stdin(session, `input of ${session}`);
    for (const session of sessions.toReversed()) agent.stdin(session);
    for (const session of sessions) expect((await agent.outcome(session)).stdout).toBe(`input of ${session}`);
  });

  test('that cannot start are refused with a kind and a message that names them', async () => {
    const cases: [object, string, RegExp][] = [
      [{ cmd: 'nope' }, 'not_found', /^spawn "nope": No such file or directory$/],
      [{ cmd: '/etc' }, 'permission_denied', /^spawn "\/etc": Permission denied$/],
      [
        { cmd: 'true', cwd: '/nope' },
        'bad_cwd',
        /^spawn "true": the working directory "\/nope" cannot be entered: No such file or directory$/,
      ],
      [{ cmd: 'true', user: 'nobody' }, 'user_setup_failed', /^spawn "true": /],
      [{ cmd: 'true', rlimits: [{ resource: 'no', soft: 1, hard: 1 }] }, 'resource_limit', /true/],
      [
        { cmd: 'true', rlimits: [{ resource: 'nofile', soft: -1, hard: 1 }] },
        'bad_args',
        /^spawn "true": "soft"/,
      ],
      [{ cmd: '' }, 'bad_args', /^spawn "": "cmd" is empty$/],
      [{ cmd: 'a\0b' }, 'bad_args', /NUL/],
      [{ cmd: nested(500) }, 'bad_args', /^spawn "": "cmd" must be a text$/],
      [{ cmd: 7 }, 'bad_args', /"cmd" must be a text/],
      [{ cmd: 'true', args: 'x' }, 'bad_args', /^spawn "true": "args" must be a list of texts$/],
      [{ cmd: 'true', args: [7] }, 'bad_args', /"args" must be a text/],
      [{ cmd: 'true', env: ['A\0=b'] }, 'bad_args', /NUL/],
      [{ cmd: 'true', tty: 'yes' }, 'bad_args', /"tty" must be true or false/],
      [{ cmd: 'true', tty: true, rows: 70_000 }, 'bad_args', /"rows" must be an integer from 0 to 65535/],
      [
        { cmd: 'true', args: ['x'.repeat(120_000), 'x'.repeat(120_000), 'x'.repeat(120_000)] },
        'bad_args',
        /^spawn "true": /,
      ],
      [
        { cmd: 'true', args: Array(6).fill('x'.repeat(100_000)) },
        'bad_args',
        /^spawn "true": the request has more than/,
      ],
      [{ cmd: 'true', args: Array(60_000).fill('') }, 'bad_args', /^spawn "true": /],
    ];
    for (const [request, kind, message] of cases) {
      const { last } = await agent.outcome(agent.exec('true', [], request));
      expect(last).toMatchObject({
        type: 'core.exec.failed',
        flags: 1,
        payload: { kind, errno_name: expect.toBeOneOf([null, expect.any(String)]) },
      });
      expect(last.payload.message).toMatch(message);
    }
  });

  test('beyond 64 at once are refused, and room is there again after the first has ended', async () => {
    const sessions = Array.from({ length: 64 }, () => agent.exec('cat'));
    const { last } = await agent.outcome(agent.exec('cat'));
    expect(last).toMatchObject({
      type: 'core.exec.failed',
      payload: { kind: 'resource_limit', message: 'spawn "cat": the connection has 64 sessions already' },
    });
    expect(await agent.fs('Stat', { path: '/', follow_symlink: true })).toEqual({
      ok: false,
      error: 'the connection has 64 sessions already',
      data: null,
    });
    agent.stdin(sessions[0]!);
    expect(await code(sessions[0]!)).toBe(0);
    expect(await code(agent.exec('true'))).toBe(0);
  });

  test('get a warning for input that nobody reads or that is no input', async () => {
    const closed = agent.sh('exec <&-; echo ready; exec sleep 600');
    await agent.next(closed, 'core.exec.stdout');
    agent.stdin(closed, 'x');
    await agent.next(closed, 'core.exec.stdin.error');
    agent.send(closed, 'core.exec.signal', { signal: 9 });
    expect(await code(closed)).toBe(137);
    const session = agent.exec('cat');
    agent.send(session, 'core.exec.stdin', { data: 'text' });
    agent.send(session, 'core.exec.signal', { signal: 1000 });
    agent.send(session, 'core.exec.resize', { rows: -1, cols: 2 });
    for (let warning = 0; warning < 3; warning++) await agent.next(session, 'core.exec.stdin.error');
    agent.send(session, 'core.exec.stdin', { data: [104, 105] });
    agent.stdin(session);
    expect(await agent.outcome(session)).toMatchObject({ stdout: 'hi', last: { payload: { code: 0 } } });
  });

  test('end with their connection, with all processes of their group', async () => {
    agent.sh('sleep 72 & sleep 72');
    agent.exec('sleep', ['72'], { tty: true });
    await until(processes, (text) => text.split('sleep 72').length > 3);
    agent.close();
    await until(processes, (text) => !text.includes('sleep 72'), 30_000);
    expect((await inside.endOf(id, 'client_left')).kind).toMatch(/exec|terminal/);
  });

  test('leave their background processes when they exit', async () => {
    const { stdout } = await agent.outcome(agent.sh('sleep 73 >/dev/null 2>&1 & echo $!'));
    agent.close();
    expect(await processes()).toContain('sleep 73');
    await execIn(id, 'sh', '-c', `kill ${stdout}`);
  });
});

function ready() {
  return { boot_time_ns: 0, init_time_ns: 0, ready_time_ns: 0, agent_version: VERSION };
}

function nested(depth: number): unknown {
  let value: unknown = [];
  for (let level = 0; level < depth; level++) value = [value];
  return value;
}
