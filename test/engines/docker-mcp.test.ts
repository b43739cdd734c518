import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { operator } from '../../src/audit/events/actor.js';
import { createKey } from '../../src/keys/create.js';
import type { Client } from '../support/client.js';
import { describeDocker, execIn, IMAGE } from '../support/docker.js';
import { startInside, type Inside } from '../support/inside.js';
import { connectHttp, connectStdio, type Agent } from '../support/mcp.js';
import { until } from '../support/polling.js';
import { startTestService } from '../support/service.js';
import { request as httpRequest } from 'node:http';

/** A PNG of one pixel. */
const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

type Result = Awaited<ReturnType<Agent['call']>>;

/** A tool answers after 45 seconds at the latest. On a busy machine the work takes longer. */
async function whenOver(made: Result, read: () => Promise<Result>): Promise<Result> {
  const isOver = ({ value }: Result) =>
    !['starting', 'queued', 'building', 'in_progress'].includes(value?.status);
  return isOver(made) ? made : until(read, isOver);
}

describeDocker('tools in real sandboxes', () => {
  let inside: Inside;
  beforeAll(async () => {
    inside = await startInside();
  });
  afterAll(() => inside.close());

  describe.each([
    ['streamable HTTP', connectHttp],
    ['standard input and output', connectStdio],
  ] as const)('over %s', (transport, connect) => {
    const box = transport.startsWith('stream') ? 'by-http' : 'by-stdio';
    let agent: Agent;
    beforeAll(async () => {
      agent = await connect(inside.service.url, inside.client.key);
      const made = await whenOver(
        await agent.call('create_sandbox', {
          image: IMAGE,
          pull_policy: 'never',
          name: box,
          memory_mib: 128,
        }),
        () => agent.call('get_sandbox', { sandbox: box }),
      );
      expect(made.value).toMatchObject({ name: box, status: 'running', network: false });
    });
    afterAll(async () => {
      await agent.call('delete_sandbox', { sandbox: box });
      await agent.close();
    });

    const run = (command: string, more: object = {}, options = {}) =>
      agent.call('run_command', { sandbox: box, command, ...more }, options);

    test('a command has its exit code, both streams, input, directory and environment', async () => {
      const { text, isError } = await run('pwd; cat; echo "$A" >&2; exit 3', {
        stdin: 'typed\n',
        cwd: '/tmp',
        env: { A: 'set' },
      });
      expect([isError, text]).toEqual([
        false,
        expect.stringMatching(
          /^exit code 3 after \d+ ms\n--- stdout ---\n\/tmp\ntyped\n--- stderr ---\nset$/,
        ),
      ]);
      expect((await run('true')).text).toMatch(/^exit code 0 after \d+ ms\n\(no output\)$/);
    });

    test('output arrives as notes of progress while the command runs', async () => {
      const notes: string[] = [];
      // It ends only when the file appears, which is written after the first note.
      const onprogress = ({ message = '' }: { message?: string }) => void notes.push(message);
      const running = run(
        'echo one; until [ -e /tmp/seen ]; do sleep 0.1; done; echo two',
        {},
        { onprogress },
      );
      await until(
        () => Promise.resolve(notes.join('')),
        (text) => text.includes('one'),
      );
      await agent.call('write_file', { sandbox: box, path: '/tmp/seen', content: '' });
      const { text } = await running;
      expect(text).toContain('--- stdout ---\none\ntwo');
      expect(notes.join('')).toMatch(/^one\n(two\n)?$/);
    });

    test('the result has the beginning and the end of long output', async () => {
      const { text } = await run('echo first; yes | head -n 100000; echo last', { max_output_chars: 200 });
      expect(text).toMatch(/stdout ---\nfirst\n(y\n)+/);
      expect(text).toContain('characters are left out');
      expect(text).toMatch(/(y\n)+last\nFor all output/);
      expect(text.length).toBeLessThan(600);
    });

    test('a command that takes too long is killed, and the result says so', async () => {
      const { text } = await run('echo begun; sleep 600', { timeout_secs: 10 });
      expect(text).toMatch(/^exit code 137 after \d+ ms\nIt was killed after 10 s/);
      expect(text).toContain('begun');
    });

    test('code runs, and a missing interpreter is named', async () => {
      const code = 'x=$((6 * 7))\necho "$x"';
      expect((await agent.call('run_code', { sandbox: box, language: 'sh', code })).text).toContain('42');
      const missing = await agent.call('run_code', { sandbox: box, language: 'python', code: 'print(1)' });
      expect(missing.text).toMatch(/^exit code 127[^]*from an image that has it[^]*python3/);
    });

    test('a command that cannot start says why', async () => {
      const { text, isError } = await run('true', { cwd: '/nowhere' });
      expect([isError, text]).toEqual([true, expect.stringContaining('command_not_started')]);
      expect(text).toContain('bad_cwd');
    });

    test('files are written, listed and read, as text, as base64 and as images', async () => {
      const files = (tool: string, more: object) => agent.call(tool, { sandbox: box, ...more });
      const text = 'Größe: 5\n';
      const written = await files('write_file', { path: '/data/a/notes.txt', content: text });
      expect(written.value).toEqual({ path: '/data/a/notes.txt', bytes: Buffer.byteLength(text) });
      const binary = Buffer.from([0, 255, 1]).toString('base64');
      await files('write_file', { path: '/data/a/raw', content: binary, encoding: 'base64' });
      await files('write_file', { path: '/data/a/dot.png', content: PIXEL, encoding: 'base64' });
      const { value } = await files('list_files', { path: '/data/a' });
      expect(value.entries.map(({ name, kind, size }: any) => [name, kind, size])).toEqual([
        ['dot.png', 'file', Buffer.from(PIXEL, 'base64').length],
        ['notes.txt', 'file', Buffer.byteLength(text)],
        ['raw', 'file', 3],
      ]);
      const read = (path: string, more: object = {}) =>
        files('read_file', { path: `/data/a/${path}`, ...more });
      expect((await read('notes.txt')).text).toBe(text);
      // The cut is in the middle of a character.
      expect((await read('notes.txt', { max_bytes: 3 })).text).toBe('Gr\n[the file goes on after 3 bytes]');
      expect((await read('raw')).text).toContain(binary);
      expect((await read('dot.png')).content).toEqual([
        { type: 'image', data: PIXEL, mimeType: 'image/png' },
      ]);
      expect((await read('missing')).text).toMatch(/sandbox_file_not_found[^]*list_files/);
      const uri = `sandkeep://sandboxes/${box}/files/data/a/notes.txt`;
      expect((await agent.client.readResource({ uri })).contents).toEqual([
        { uri, mimeType: 'text/plain', text },
      ]);
      const raw = { uri: uri.replace('notes.txt', 'raw') };
      expect((await agent.client.readResource(raw)).contents).toMatchObject([{ ...raw, blob: binary }]);
    });

    test('a directory with very many entries is not read whole', async () => {
      const command =
        'busybox mkdir /many; cd /many; n=$(busybox printf %0200d 0); i=0; while [ $i -lt 3000 ]; do : >$n$i; i=$((i+1)); done';
      await run(command, { timeout_secs: 120 });
      const { text, isError } = await agent.call('list_files', { sandbox: box, path: '/many' });
      expect([isError, text]).toEqual([true, expect.stringContaining('too many entries')]);
    });

    test('a cancelled call ends its command', async () => {
      const stop = new AbortController();
      const running = run(
        'echo $$ >/tmp/pid; exec sleep 600',
        { timeout_secs: 700 },
        { signal: stop.signal },
      );
      running.catch(() => undefined);
      const { body } = await inside.client.get(`/v1/sandboxes/by-name/${box}`);
      const isAlive = () =>
        execIn(body.id, 'sh', '-c', 'kill -0 $(cat /tmp/pid) 2>&1 && echo alive || echo gone');
      await until(isAlive, (word) => word.includes('alive'));
      stop.abort('enough');
      await expect(running).rejects.toThrow('enough');
      await until(isAlive, (word) => word.includes('gone'));
    });

    test('the log of a sandbox with a main command is read by its last lines', async () => {
      const id = await inside.start(`${box}-logs`, {
        runtime: { cmd: ['sh', '-c', 'for i in 1 2 3 4 5; do echo line $i; done; sleep 600'] },
      });
      const read = () => agent.call('read_logs', { sandbox: id, lines: 2 });
      const { text } = await until(read, (result) => result.text.includes('line 5'));
      expect(text).toBe('line 4\nline 5\n');
      const uri = `sandkeep://sandboxes/${id}/logs`;
      const { contents } = await agent.client.readResource({ uri });
      expect(contents).toEqual([
        { uri, mimeType: 'text/plain', text: 'line 1\nline 2\nline 3\nline 4\nline 5\n' },
      ]);
    });
  });

  test('a template of commands is built once, and sandboxes start from it until it is deleted', async () => {
    const agent = await connectStdio(inside.service.url, inside.client.key);
    // Its snapshots stay until its sandboxes are gone.
    const build = async (tag: string, commands: string[]) =>
      whenOver(await agent.call('build_template', { tag, from: IMAGE, commands }), () =>
        agent.call('get_template', { template: tag }),
      );
    const made = await build('agent:1', ['echo prepared > /prepared', 'echo said']);
    expect(made.value, made.text).toMatchObject({
      template: 'agent:1',
      status: 'succeeded',
      steps_cached: 0,
    });
    expect(made.value.digest).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect((await agent.call('read_template_log', { template: 'agent:1' })).text).toMatch(
      /said\n[^]*the build: succeeded/,
    );
    const again = await build('agent:2', ['echo prepared > /prepared', 'echo said']);
    expect(again.value).toMatchObject({
      steps_cached: 2,
      snapshot: made.value.snapshot,
      digest: made.value.digest,
    });
    const started = await whenOver(
      await agent.call('start_from_template', {
        template: 'agent:2',
        name: 'of-template',
        memory_mib: 64,
      }),
      () => agent.call('get_sandbox', { sandbox: 'of-template' }),
    );
    expect(started.value, started.text).toMatchObject({ status: 'running' });
    const { body } = await inside.client.get('/v1/sandboxes/by-name/of-template');
    expect(body.disk_snapshot_id).toBe(made.value.snapshot);
    const read = async (sandbox: string) =>
      (await agent.call('read_file', { sandbox, path: '/prepared' })).text;
    expect(await read('of-template')).toBe('prepared\n');
    const begun = await agent.call('fork_sandbox', { sandbox: 'of-template', count: 2 });
    const forked = await whenOver(begun, () => agent.call('get_fork', { fork: begun.value.fork }));
    expect(forked.value).toMatchObject({ status: 'succeeded' });
    for (const { id } of forked.value.sandboxes) {
      await until(
        async () => (await agent.call('get_sandbox', { sandbox: id })).value.status,
        (status) => status === 'running',
        60_000,
      );
      expect(await read(id)).toBe('prepared\n');
    }
    const failed = await build('agent:3', ['echo reason >&2; exit 7']);
    expect([failed.isError, failed.value.status]).toEqual([true, 'failed']);
    expect((await agent.call('read_template_log', { template: 'agent:3' })).text).toContain('reason');
    for (const template of ['agent:1', 'agent:2'])
      expect((await agent.call('delete_template', { template })).isError).toBe(false);
    const gone = await agent.call('start_from_template', { template: 'agent:2' });
    expect([gone.isError, gone.text]).toEqual([true, expect.stringContaining('template_not_found')]);
    await agent.close();
  });

  test('a sandbox that ends while a command runs says so, with the output so far', async () => {
    const agent = await connectHttp(inside.service.url, inside.client.key);
    const id = await inside.start('ending');
    const running = agent.call('run_command', {
      sandbox: id,
      command: 'echo begun; touch /begun; sleep 600',
    });
    await until(
      () => execIn(id, 'sh', '-c', 'ls /begun 2>/dev/null || echo no'),
      (text) => text.includes('/begun'),
    );
    await agent.call('stop_sandbox', { sandbox: id });
    const { text, isError } = await running;
    expect([isError, text]).toEqual([
      true,
      expect.stringMatching(/ended_with_sandbox[^]*--- stdout ---\nbegun/),
    ]);
    await agent.close();
  });

  test('a revoked key ends its command at once', async () => {
    const made = await createKey(inside.service.ctx.pool, inside.client.org.id, 'short', operator('test'));
    const agent = await connectHttp(inside.service.url, made.key);
    const id = await inside.start('revoked');
    const running = agent.call('run_command', { sandbox: id, command: 'touch /begun; sleep 600' });
    await until(
      () => execIn(id, 'sh', '-c', 'ls /begun 2>/dev/null || echo no'),
      (text) => text.includes('/begun'),
    );
    await inside.client.delete(`/v1/keys/${made.id}`);
    const { text, isError } = await running;
    expect([isError, text]).toEqual([true, expect.stringContaining('invalid_api_key')]);
    await until(
      () => sessionsOf(inside.client, id),
      (count) => count === 0,
    );
    await agent.close();
  });

  test('a process without the engine of a sandbox passes on what its tools ask for', async () => {
    const beside = await startTestService({ beside: inside.service, worker: false });
    const agent = await connectHttp(beside.url, inside.client.key);
    const id = await inside.start('elsewhere');
    const ran = await agent.call('run_command', { sandbox: id, command: 'cat', stdin: 'passed on' });
    expect(ran.text).toContain('passed on');
    await agent.call('write_file', { sandbox: id, path: '/tmp/file', content: 'written' });
    expect((await agent.call('read_file', { sandbox: id, path: '/tmp/file' })).text).toBe('written');
    expect((await agent.call('read_logs', { sandbox: id })).isError).toBe(false);
    await agent.close();
    await beside.close();
  });

  test('secret variables are masked', async () => {
    const agent = await connectHttp(inside.service.url, inside.client.key);
    const id = await inside.start('secretive', {
      env: [{ key: 'TOKEN', value: 'hunter2-hunter2', secret: true }],
    });
    const { text } = await agent.call('run_command', { sandbox: id, command: 'echo "got $TOKEN"' });
    expect(text).toContain('got ***');
    await agent.close();
  });

  test('a client that reads nothing holds few notes, and its command ends', async () => {
    const id = await inside.start('unread');
    const message = {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: {
        name: 'run_command',
        _meta: { progressToken: 1 },
        arguments: { sandbox: id, command: 'yes | head -c 50000000', max_output_chars: 1_000 },
      },
    };
    const body = JSON.stringify(message);
    const sent = httpRequest(`${inside.service.url}/mcp`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${inside.client.key}`,
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'content-length': body.length,
      },
      agent: false,
    });
    sent.end(body);
    // The answer is never read.
    sent.on('response', (answer) => answer.pause());
    const { exit_code: code } = await inside.endOf(id, 'exited');
    expect(code).toBe(0);
    sent.destroy();
  });
});

async function sessionsOf(client: Client, id: string): Promise<number> {
  const { body } = await client.get(`/v1/sandboxes/${id}/sessions`);
  return body.data.length;
}
