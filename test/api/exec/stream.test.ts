import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeDocker, execIn } from '../../support/docker.js';
import { allEvents, openEvents, type ServerEvent } from '../../support/event-stream.js';
import { startInside, type Inside } from '../../support/inside.js';
import { until } from '../../support/polling.js';

describeDocker('the event stream of a command', () => {
  let inside: Inside;
  let id: string;
  beforeAll(async () => {
    inside = await startInside();
    id = await inside.start('streamed');
  });
  afterAll(() => inside.close());

  const open = (body: object, options: { signal?: AbortSignal; headers?: Record<string, string> } = {}) =>
    openEvents(inside.client, `/v1/sandboxes/${id}/exec`, { body, ...options });
  const sh = (script: string, more: object = {}) => open({ cmd: 'sh', args: ['-c', script], ...more });
  const textOf = (events: ServerEvent[], name: string) =>
    events
      .filter(({ event }) => event === name)
      .map(({ data }) => data.text as string)
      .join('');
  const processes = async () => execIn(id, 'busybox', 'ps');

  test('has the start, both streams and the exit code', async () => {
    const { response, events } = await sh('echo out; echo err >&2; exit 7');
    expect(response.headers.get('content-type')).toBe('text/event-stream');
    const all = await allEvents(events);
    expect(all[0]).toEqual({ event: 'started', data: { pid: expect.any(Number) } });
    expect([textOf(all, 'stdout'), textOf(all, 'stderr')]).toEqual(['out\n', 'err\n']);
    expect(all.at(-1)).toEqual({
      event: 'exited',
      data: { exit_code: 7, timed_out: false, oom_killed: false, duration_ms: expect.any(Number) },
    });
  });

  test('shows output before the end, and kills the command when the reader leaves', async () => {
    const gone = new AbortController();
    const { events } = await open(
      { cmd: 'sh', args: ['-c', 'echo first; exec sleep 5432'] },
      { signal: gone.signal },
    );
    expect((await events.next()).value.event).toBe('started');
    expect((await events.next()).value.data).toEqual({ text: 'first\n' });
    await until(processes, (text) => text.includes('sleep 5432'), 30_000);
    gone.abort();
    await until(processes, (text) => !text.includes('sleep 5432'), 30_000);
    expect(await inside.endOf(id, 'client_left')).toMatchObject({ exit_code: null });
  });

  test('joins a character that two writes share, and sends bytes as base64 on request', async () => {
    const script = "printf '\\303'; sleep 1; printf '\\274'; sleep 1; printf '\\303'";
    const text = textOf(await allEvents((await sh(script)).events), 'stdout');
    expect(text).toBe('ü\uFFFD');
    const raw = await allEvents((await sh(script, { output_encoding: 'base64' })).events);
    const bytes = raw.filter(({ event }) => event === 'stdout').map(({ data }) => data.base64);
    expect(Buffer.concat(bytes.map((part) => Buffer.from(part, 'base64')))).toEqual(
      Buffer.from([0xc3, 0xbc, 0xc3]),
    );
  });

  test('tells of a command that does not start, and of one that times out', async () => {
    expect(await allEvents((await open({ cmd: 'no-such-program' })).events)).toMatchObject([
      { event: 'failed', data: { error: { code: 'command_not_started', details: { kind: 'not_found' } } } },
    ]);
    const late = await allEvents((await sh('echo begun; sleep 600', { timeout_secs: 4 })).events);
    expect(late.at(-1)).toMatchObject({ event: 'exited', data: { exit_code: 137, timed_out: true } });
    expect(textOf(late, 'stdout')).toBe('begun\n');
  });

  test('stops the command while nobody reads, and has every byte in the end', async () => {
    const { events } = await sh(
      'dd if=/dev/zero bs=1000 count=20000 2>/dev/null | busybox tr "\\0" x; echo done > /tmp/stalled',
    );
    await events.next();
    await until(processes, (text) => text.includes('busybox tr'), 30_000);
    const before = process.memoryUsage().rss;
    const isOver = async () => (await execIn(id, 'ls', '/tmp')).includes('stalled');
    for (let round = 0; round < 10; round += 1) expect(await isOver()).toBe(false);
    expect(process.memoryUsage().rss - before).toBeLessThan(64 * 1024 * 1024);
    expect(textOf(await allEvents(events), 'stdout').length).toBe(20_000_000);
    expect(await isOver()).toBe(true);
  });

  test('takes neither an idempotency key nor a limit of output', async () => {
    for (const options of [
      { body: { cmd: 'true' }, headers: { 'idempotency-key': 'x' } },
      { body: { cmd: 'true', max_output_bytes: 5 }, headers: {} },
    ]) {
      const { response } = await open(options.body, { headers: options.headers });
      expect(response.status).toBe(400);
      expect(((await response.json()) as any).error.code).toBe('invalid_request');
    }
  });

  test('ends when its key is revoked', async () => {
    const { body } = await inside.client.post('/v1/keys', { name: 'doomed', scopes: ['sandboxes:exec'] });
    const { events } = await openEvents({ ...inside.client, key: body.key }, `/v1/sandboxes/${id}/exec`, {
      body: { cmd: 'sleep', args: ['6543'] },
    });
    await until(processes, (text) => text.includes('sleep 6543'), 30_000);
    await inside.client.delete(`/v1/keys/${body.id}`);
    expect((await allEvents(events)).at(-1)).toMatchObject({
      event: 'failed',
      data: { error: { code: 'invalid_api_key' } },
    });
    await until(processes, (text) => !text.includes('sleep 6543'), 30_000);
    expect(await inside.endOf(id, 'key_revoked')).toMatchObject({ exit_code: null });
  });
});
