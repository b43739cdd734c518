import { afterAll, beforeAll, expect, test } from 'vitest';
import { containerOf, describeDocker, execIn } from '../../support/docker.js';
import { startInside, type Inside } from '../../support/inside.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { dialTerminal, openTerminal } from '../../support/terminal-client.js';
import { startTestService } from '../../support/service.js';

const codeOf = ({ status, body }: { status: number; body: any }) => [status, body?.error?.code];

test('the simulated runtime refuses commands, and a sandbox that does not run has none', async () => {
  const service = await startTestService();
  const client = await service.newOrg();
  const { body } = await client.post('/v1/sandboxes', smallRequest('idle'));
  const exec = () => client.post(`/v1/sandboxes/${body.id}/exec`, { cmd: 'true' });
  expect(codeOf(await exec())).toEqual([409, 'invalid_state_transition']);
  await client.post(`/v1/sandboxes/${body.id}/start`, {}, { wait_for: 'running' });
  expect(codeOf(await exec())).toEqual([501, 'not_supported']);
  await service.close();
});

describeDocker('commands over HTTP', () => {
  let inside: Inside;
  let id: string;
  beforeAll(async () => {
    inside = await startInside();
    id = await inside.start('box');
  });
  afterAll(() => inside.close());

  const exec = (body: object, headers: Record<string, string> = {}) =>
    inside.client.request('POST', `/v1/sandboxes/${id}/exec`, { body, headers });
  const sh = (script: string, more: object = {}) => exec({ cmd: 'sh', args: ['-c', script], ...more });
  const processes = async () => (await execIn(id, 'busybox', 'ps')).trim();

  test('answer with the exit code and both streams, by id and by name', async () => {
    const { body } = await sh('echo out; echo err >&2; exit 3');
    expect(body).toEqual({
      exit_code: 3,
      stdout: 'out\n',
      stderr: 'err\n',
      truncated: false,
      timed_out: false,
      oom_killed: false,
      duration_ms: expect.any(Number),
    });
    const named = await inside.client.post('/v1/sandboxes/by-name/box/exec', {
      cmd: 'echo',
      args: ['hello'],
    });
    expect(named.body.stdout).toBe('hello\n');
  });

  test('get their arguments, variables, directory, user and input as they are', async () => {
    const args = ['$HOME && false', ' two  spaces ', '', 'ü\n'];
    const printed = await exec({ cmd: 'sh', args: ['-c', 'printf "%s|" "$@"', 'x', ...args] });
    expect(printed.body.stdout).toBe(args.map((arg) => `${arg}|`).join(''));
    const { body } = await sh('echo "$A $B"; pwd; id -u; cat', {
      env: { A: '1', B: 'x=y' },
      cwd: '/tmp',
      user: '1234',
      stdin: 'in\0put'.replace('\0', 'ü'),
    });
    expect(body.stdout).toBe('1 x=y\n/tmp\n1234\ninüput');
    const bytes = Buffer.from([0, 255, 254, 10, 0xc3]);
    const binary = await exec({
      cmd: 'cat',
      stdin_base64: bytes.toString('base64'),
      output_encoding: 'base64',
    });
    expect(binary.body.stdout).toBe(bytes.toString('base64'));
    const lossy = await exec({ cmd: 'cat', stdin_base64: bytes.toString('base64') });
    expect(lossy.body.stdout).toBe('\0��\n�');
  });

  test('that cannot start are refused by kind, and leave no process', async () => {
    for (const [body, kind] of [
      [{ cmd: 'no-such-program' }, 'not_found'],
      [{ cmd: '/etc' }, 'permission_denied'],
      [{ cmd: 'true', cwd: '/nowhere' }, 'bad_cwd'],
      [{ cmd: 'true', user: 'nobody-knows' }, 'user_setup_failed'],
    ] as const) {
      const answer = await exec(body);
      expect([...codeOf(answer), answer.body.error.details.kind]).toEqual([422, 'command_not_started', kind]);
    }
    expect(await inside.endOf(id, 'user_setup_failed')).toMatchObject({ kind: 'exec', exit_code: null });
  });

  test('without a directory run in / with a warning after that of the sandbox is gone', async () => {
    const box = await inside.start('moved', { runtime: { cmd: ['sleep', '600'], workdir: '/tmp/work' } });
    const run = (body: object) => inside.client.post(`/v1/sandboxes/${box}/exec`, body);
    const script = (text: string) => run({ cmd: 'sh', args: ['-c', text] });
    expect((await script('pwd')).body).toMatchObject({ stdout: '/tmp/work\n', stderr: '' });
    const warning = (cause: string) =>
      `sandkeep: the working directory "/tmp/work" of the sandbox cannot be entered: ${cause}; the command runs in /\n`;
    await script('cd /; busybox rmdir /tmp/work');
    expect((await script('pwd')).body).toMatchObject({
      exit_code: 0,
      stdout: '/\n',
      stderr: warning('it does not exist'),
    });
    await script('echo > /tmp/work');
    expect((await script('pwd')).body.stderr).toBe(warning('it is not a directory'));
    const named = await run({ cmd: 'pwd', cwd: '/tmp/work' });
    expect([...codeOf(named), named.body.error.message]).toEqual([
      422,
      'command_not_started',
      'spawn "pwd": the working directory "/tmp/work" cannot be entered: Not a directory',
    ]);
  });

  test('are refused with fields that make no sense', async () => {
    for (const body of [
      {},
      { cmd: '' },
      { cmd: 'true', args: [1] },
      { cmd: 'true', env: { 'A=B': '1' } },
      { cmd: 'true', env: [{ name: 'A', value: '1' }] },
      { cmd: 'true', stdin: 'x', stdin_base64: 'eA==' },
      { cmd: 'true', stdin_base64: 'x' },
      { cmd: 'true', timeout_secs: 0 },
      { cmd: 'true', timeout_secs: 3_601 },
      { cmd: 'true', max_output_bytes: -1 },
      { cmd: 'true', max_output_bytes: 8 * 1024 * 1024 + 1 },
      { cmd: 'true', shell: true },
      { cmd: 'tr\0ue' },
    ]) {
      expect([body, ...codeOf(await exec(body))]).toEqual([body, 400, 'invalid_request']);
    }
  });

  test('write beyond the limit of output to their end', async () => {
    const { body } = await sh('dd if=/dev/zero bs=1000 count=5000 2>/dev/null; echo done > /tmp/after', {
      max_output_bytes: 10,
    });
    expect(body).toMatchObject({ exit_code: 0, truncated: true, stdout: '\0'.repeat(10) });
    expect((await sh('cat /tmp/after')).body.stdout).toBe('done\n');
    expect((await sh('printf 1234567890', { max_output_bytes: 10 })).body.truncated).toBe(false);
    expect((await sh('echo', { max_output_bytes: 0 })).body).toMatchObject({ stdout: '', truncated: true });
    const both = await sh('printf 12345; sleep 1; printf 67890 >&2', { max_output_bytes: 7 });
    expect(both.body).toMatchObject({ stdout: '12345', stderr: '67', truncated: true });
  });

  test('answer with the text of any bytes, however they are cut into pieces', async () => {
    const all = { max_output_bytes: 700_000 };
    const { body: text } = await sh('head -c 700000 /dev/urandom > /tmp/random; cat /tmp/random', all);
    const { body: bytes } = await sh('cat /tmp/random', { ...all, output_encoding: 'base64' });
    const expected = Buffer.from(bytes.stdout, 'base64');
    expect(expected).toHaveLength(700_000);
    expect(text.stdout === expected.toString()).toBe(true);
  });

  test('that time out are killed with their group, and answer with the output so far', async () => {
    const { body } = await sh('echo begun; sleep 3123 & sleep 3123', { timeout_secs: 4 });
    expect(body).toMatchObject({ exit_code: 137, stdout: 'begun\n', timed_out: true });
    expect(body.duration_ms).toBeGreaterThanOrEqual(4_000);
    await until(processes, (text) => !text.includes('sleep 3123'), 30_000);
  });

  test('whose process left the group still time out', async () => {
    const { body } = await sh('echo begun; busybox setsid sleep 60; true', { timeout_secs: 4 });
    expect(body).toMatchObject({ stdout: 'begun\n', timed_out: true });
  });

  test('time out also while the guest has stopped the agent', async () => {
    const answer = sh('echo begun; sleep 3124', { timeout_secs: 15 });
    await until(processes, (text) => text.includes('sleep 3124'), 30_000);
    const [, agent = ''] = /^ *(\d+) .*\/bin\/agent/m.exec(await processes())!;
    const signal = (name: string) => execIn(id, 'busybox', 'kill', `-${name}`, agent);
    await signal('STOP');
    const stopped = performance.now();
    const { body } = await answer;
    const waited = performance.now() - stopped;
    await signal('CONT');
    expect(body).toMatchObject({ exit_code: 137, stdout: 'begun\n', timed_out: true });
    // Without a bound of its own the answer waited for the agent for 33 s after the time-out.
    expect(waited).toBeLessThan(30_000);
    await until(processes, (text) => !text.includes('sleep 3124'), 30_000);
  });

  test('end with the client that leaves', async () => {
    const gone = new AbortController();
    const left = inside.client.request('POST', `/v1/sandboxes/${id}/exec`, {
      body: { cmd: 'sleep', args: ['4321'] },
      signal: gone.signal,
    });
    await until(processes, (text) => text.includes('sleep 4321'), 30_000);
    gone.abort();
    await expect(left).rejects.toThrow();
    await until(processes, (text) => !text.includes('sleep 4321'), 30_000);
    expect(await inside.endOf(id, 'client_left')).toMatchObject({ program: 'sleep', exit_code: null });
  });

  test.each(['stop', 'kill', 'remove', 'delete'])(
    'end with their sandbox, with their output, and run no second time: %s',
    async (how) => {
      const box = await inside.start(`ends-${how}`);
      const mark = `/volumes/${how}`;
      const body = {
        cmd: 'sh',
        args: ['-c', `echo ran; echo bad >&2; echo x >> /tmp/ran; sleep 4323 # ${mark}`],
      };
      const keyed = (headers: object = { 'idempotency-key': `ends-${how}` }) =>
        inside.client.request('POST', `/v1/sandboxes/${box}/exec`, { body, headers: { ...headers } });
      const stream = fetch(`${inside.client.url}/v1/sandboxes/${box}/exec`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${inside.client.key}`,
          accept: 'text/event-stream',
          'content-type': 'application/json',
        },
        body: JSON.stringify({ cmd: 'sleep', args: ['4324'] }),
      }).then((response) => response.text());
      const terminal = await openTerminal(
        dialTerminal(
          inside.client.url,
          box,
          (await inside.client.post(`/v1/sandboxes/${box}/terminal-tickets`, {})).body.ticket,
        ),
      );
      const cut = keyed();
      await until(
        () => execIn(box, 'busybox', 'ps'),
        (text) => text.includes('sleep 4323') && text.includes('sleep 4324') && text.includes('/bin/sh'),
        30_000,
      );
      expect(codeOf(await keyed())).toEqual([409, 'idempotency_conflict']);
      const container = (await containerOf(box))!;
      if (how === 'stop') await inside.client.post(`/v1/sandboxes/${box}/stop`, {});
      else if (how === 'kill') await container.kill();
      else if (how === 'remove') await container.remove({ force: true });
      else await inside.client.delete(`/v1/sandboxes/${box}`);

      const answer = await cut;
      const reason = { stop: 'requested', kill: 'engine', remove: expect.any(String), delete: 'requested' }[
        how
      ];
      expect([...codeOf(answer), answer.body.error.details]).toEqual([
        409,
        'ended_with_sandbox',
        {
          reason,
          started_at: expect.stringMatching(/^\d{4}-.*Z$/),
          duration_ms: expect.any(Number),
          stdout: 'ran\n',
          stderr: 'bad\n',
          truncated: false,
        },
      ]);
      expect(answer.body.error.message).toMatch(/^the sandbox ended before the operation did: ./);
      expect(await stream).toContain('"code":"ended_with_sandbox"');
      await terminal.closed;
      expect(terminal.messages).toMatchObject([{ type: 'failed', error: { code: 'ended_with_sandbox' } }]);
      // The key keeps the answer, while the sandbox rests and after its next start.
      const repeat = async () => {
        const { status, body: repeated, headers } = await keyed();
        expect([status, repeated, headers.get('idempotency-replayed')]).toEqual([409, answer.body, 'true']);
      };
      await repeat();
      if (how === 'delete') return;
      await until(
        async () => (await inside.client.get(`/v1/sandboxes/${box}`)).body.status,
        (status) => status === 'stopped' || status === 'failed',
      );
      expect(codeOf(await keyed({}))).toEqual([409, 'invalid_state_transition']);
      await inside.client.post(`/v1/sandboxes/${box}/start`, {}, { wait_for: 'running' });
      await repeat();
      const count = { cmd: 'sh', args: ['-c', 'cat /tmp/ran 2>/dev/null; true'] };
      const { stdout } = (await inside.client.post(`/v1/sandboxes/${box}/exec`, count)).body;
      expect(stdout).toBe(how === 'remove' ? '' : 'x\n');
    },
  );

  test('that a sandbox never got are not kept under their key', async () => {
    const box = await inside.start('never');
    await inside.client.post(`/v1/sandboxes/${box}/stop`, {}, { wait_for: 'stopped' });
    const keyed = () =>
      inside.client.request('POST', `/v1/sandboxes/${box}/exec`, {
        body: { cmd: 'echo', args: ['now'] },
        headers: { 'idempotency-key': 'never' },
      });
    expect(codeOf(await keyed())).toEqual([409, 'invalid_state_transition']);
    await inside.client.post(`/v1/sandboxes/${box}/start`, {}, { wait_for: 'running' });
    expect((await keyed()).body.stdout).toBe('now\n');
  });

  test('end with their sandbox, and leave a record of it', async () => {
    const doomed = await inside.start('doomed');
    const answer = inside.client.post(`/v1/sandboxes/${doomed}/exec`, { cmd: 'sleep', args: ['4322'] });
    await until(
      () => execIn(doomed, 'busybox', 'ps'),
      (text) => text.includes('sleep 4322'),
      30_000,
    );
    await inside.client.post(`/v1/sandboxes/${doomed}/stop`, {});
    expect(codeOf(await answer)).toEqual([409, 'ended_with_sandbox']);
    expect(await inside.endOf(doomed, 'sandbox_stopped')).toMatchObject({ exit_code: null });
  });

  test('run once for each idempotency key', async () => {
    const key = { 'idempotency-key': 'once' };
    const body = { cmd: 'sh', args: ['-c', 'echo x >> /tmp/once; cat /tmp/once; printf "\\0"'] };
    const first = await exec(body, key);
    expect(first.body.stdout).toBe('x\n\0');
    const second = await exec(body, key);
    expect(second.headers.get('idempotency-replayed')).toBe('true');
    expect(second.body).toEqual(first.body);
    expect((await sh('cat /tmp/once')).body.stdout).toBe('x\n');
    expect(codeOf(await exec({ cmd: 'true' }, key))).toEqual([409, 'idempotency_conflict']);
    const large = { cmd: 'true', max_output_bytes: 256 * 1024 + 1 };
    expect(codeOf(await exec(large, { 'idempotency-key': 'large' }))).toEqual([400, 'invalid_request']);
  });

  test('hold a bounded amount of memory for each organization', async () => {
    const body = { cmd: 'sleep', args: ['4323'], max_output_bytes: 8 * 1024 * 1024, timeout_secs: 60 };
    const gone = new AbortController();
    const held = Array.from({ length: 15 }, () =>
      inside.client
        .request('POST', `/v1/sandboxes/${id}/exec`, { body, signal: gone.signal })
        .catch(() => undefined),
    );
    await until(processes, (text) => text.split('sleep 4323').length > 15, 30_000);
    const refused = await exec({ cmd: 'true', max_output_bytes: 8 * 1024 * 1024, stdin: 'x' });
    expect(codeOf(refused)).toEqual([429, 'rate_limited']);
    expect(refused.headers.get('retry-after')).toBe('5');
    expect((await exec({ cmd: 'true' })).status).toBe(200);
    gone.abort();
    await Promise.all(held);
    await until(
      () => exec({ cmd: 'true', max_output_bytes: 8 * 1024 * 1024, stdin: 'x' }),
      ({ status }) => status === 200,
      30_000,
    );
  });

  test('are recorded with program, exit code, duration and bytes, and without arguments', async () => {
    const box = await inside.start('recorded');
    const body = { cmd: 'cat', args: ['-', '/dev/null'], stdin: 'secret!' };
    await inside.client.post(`/v1/sandboxes/${box}/exec`, body);
    expect(await inside.endOf(box, 'exited')).toEqual({
      session_id: expect.any(String),
      sandbox_id: box,
      name: 'recorded',
      kind: 'exec',
      user: null,
      program: 'cat',
      argument_count: 2,
      reason: 'exited',
      exit_code: 0,
      oom_killed: false,
      duration_ms: expect.any(Number),
      bytes_in: 7,
      bytes_out: 7,
      file_writes: 0,
    });
  });

  test('need the scope, and the labels of a narrowed key', async () => {
    const labelled = await inside.start('labelled', { labels: { team: 'a' } });
    const keyFor = async (scopes: string[], labels: object) =>
      (await inside.client.post('/v1/keys', { name: 'narrow', scopes, labels })).body.key as string;
    const by = async (key: string, box: string) =>
      codeOf(
        await inside.client.request('POST', `/v1/sandboxes/${box}/exec`, { body: { cmd: 'true' }, key }),
      );
    const narrowed = await keyFor(['sandboxes:exec'], { team: 'a' });
    expect(await by(narrowed, labelled)).toEqual([200, undefined]);
    expect(await by(narrowed, id)).toEqual([404, 'sandbox_not_found']);
    expect(await by(await keyFor(['sandboxes:write'], {}), id)).toEqual([403, 'insufficient_scope']);
    const other = await inside.service.newOrg();
    expect(await by(other.key, id)).toEqual([404, 'sandbox_not_found']);
  });
});
