import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../../support/client.js';
import { describeDocker, execIn } from '../../support/docker.js';
import { startInside, type Inside } from '../../support/inside.js';
import { until } from '../../support/polling.js';
import { dialTerminal, openTerminal, shows, statusOf, type Way } from '../../support/terminal-client.js';

const ALLOWED = 'https://console.example.com';

describeDocker('a terminal over a WebSocket', () => {
  let inside: Inside;
  let id: string;
  beforeAll(async () => {
    inside = await startInside({ settings: { terminalOrigins: [ALLOWED] } });
    id = await inside.start('box');
  });
  afterAll(() => inside.close());

  async function ticketFor(body: object = {}, client: Client = inside.client, box = id): Promise<string> {
    const answer = await client.post(`/v1/sandboxes/${box}/terminal-tickets`, body);
    expect(answer.status, answer.text).toBe(200);
    return answer.body.ticket;
  }

  const dial = (ticket: string, { box = id, ...way }: Way & { box?: string } = {}) =>
    dialTerminal(inside.client.url, box, ticket, way);
  const open = async (body: object = {}, client: Client = inside.client) =>
    openTerminal(dial(await ticketFor(body, client)));
  const processes = async () => execIn(id, 'busybox', 'ps');

  test('carries bytes in both directions, its size, and the exit code', async () => {
    const terminal = await open({ rows: 33, cols: 99, env: { GREETING: 'ü' }, cwd: '/tmp' });
    terminal.socket.send(Buffer.from('busybox stty size; echo "$GREETING$GREETING"; pwd\n'));
    await shows(terminal, '33 99');
    await shows(terminal, 'üü\r\n/tmp');
    terminal.socket.send(JSON.stringify({ type: 'resize', rows: 12, cols: 34 }));
    // A hidden part of a page has no size, and others have fractions of rows.
    terminal.socket.send('{"type":"resize","rows":0,"cols":0}');
    terminal.socket.send('{"type":"resize","rows":-1,"cols":50}');
    terminal.socket.send(Buffer.from('busybox stty size; exit 7\n'));
    expect(await terminal.closed).toBe(1000);
    expect(terminal.text()).toContain('12 34');
    expect(terminal.messages).toEqual([{ type: 'exited', exit_code: 7 }]);
    expect(await inside.endOf(id, 'exited')).toMatchObject({
      kind: 'terminal',
      program: '/bin/sh',
      exit_code: 7,
    });
  });

  test('has the default size instead of none, and whole rows and columns', async () => {
    const terminal = await open({ rows: 0, cols: 0 });
    terminal.socket.send(Buffer.from('busybox stty size\n'));
    await shows(terminal, '24 80');
    terminal.socket.send('{"type":"resize","rows":30.9,"cols":100.7}');
    terminal.socket.send(Buffer.from('busybox stty size; exit\n'));
    await terminal.closed;
    expect(terminal.text()).toContain('30 100');
  });

  test('opens once for each ticket, also when two open at the same time', async () => {
    const ticket = await ticketFor();
    const sockets = Array.from({ length: 4 }, () => dial(ticket));
    const statuses = await Promise.all(sockets.map(statusOf));
    expect(statuses.toSorted((a, b) => a - b)).toEqual([101, 401, 401, 401]);
    for (const socket of sockets) socket.terminate();
    expect(await statusOf(dial(ticket))).toBe(401);
  });

  test('refuses tickets that are unknown, expired, for another sandbox or of a revoked key', async () => {
    const other = await inside.start('other');
    expect(await statusOf(dial('skt_unknown'))).toBe(401);
    expect(await statusOf(dial(await ticketFor(), { box: other }))).toBe(401);
    const expired = await ticketFor();
    await inside.service.ctx.pool.query('update terminal_tickets set expires_at = now()');
    expect(await statusOf(dial(expired))).toBe(401);
    const { body } = await inside.client.post('/v1/keys', { name: 'gone', scopes: ['sandboxes:exec'] });
    const ticket = await ticketFor({}, { ...inside.client, ...keyed(body.key) });
    await inside.client.delete(`/v1/keys/${body.id}`);
    expect(await statusOf(dial(ticket))).toBe(401);
    const plain = await inside.client.get(`/v1/sandboxes/${id}/terminal`);
    expect([plain.status, plain.body.error.code]).toEqual([400, 'invalid_request']);
  });

  test('refuses a ticket of another organization in both directions', async () => {
    const stranger = await inside.service.newOrg();
    const strange = await inside.start('strange', {}, stranger);
    const theirs = await ticketFor({}, stranger, strange);
    // The sandbox is as one that does not exist.
    expect(await statusOf(dial(theirs))).toBe(404);
    expect(await statusOf(dial(await ticketFor(), { box: strange }))).toBe(404);
    expect(await statusOf(dial(await ticketFor({}, stranger, strange), { box: strange }))).toBe(101);
  });

  test('accepts pages of its own host and of the allowed origins, and no others', async () => {
    for (const [origin, status] of [
      [inside.client.url, 101],
      [ALLOWED, 101],
      ['https://evil.example.com', 403],
      ['null', 403],
      [`${ALLOWED}.evil.example.com`, 403],
    ] as const) {
      const socket = dial(await ticketFor(), { origin });
      expect([origin, await statusOf(socket)]).toEqual([origin, status]);
      socket.terminate();
    }
  });

  test('ends with the client that leaves, and leaves no process', async () => {
    const terminal = await open({ cmd: 'sh', args: ['-c', 'sleep 7654; true'] });
    await until(processes, (text) => text.includes('sleep 7654'), 30_000);
    terminal.socket.terminate();
    await until(processes, (text) => !text.includes('sleep 7654'), 30_000);
    expect(await inside.endOf(id, 'client_left')).toMatchObject({ kind: 'terminal' });
  });

  test('ends when its key is revoked', async () => {
    const { body } = await inside.client.post('/v1/keys', { name: 'doomed', scopes: ['sandboxes:exec'] });
    const terminal = await open({ cmd: 'sleep', args: ['8765'] }, { ...inside.client, ...keyed(body.key) });
    await until(processes, (text) => text.includes('sleep 8765'), 30_000);
    await inside.client.delete(`/v1/keys/${body.id}`);
    await terminal.closed;
    expect(terminal.messages).toMatchObject([{ type: 'failed', error: { code: 'invalid_api_key' } }]);
    await until(processes, (text) => !text.includes('sleep 8765'), 30_000);
    expect(await inside.endOf(id, 'key_revoked')).toMatchObject({ kind: 'terminal' });
  });

  test('tells of a command that does not start', async () => {
    const terminal = await open({ cmd: 'no-such-program' });
    await terminal.closed;
    expect(terminal.messages).toMatchObject([{ type: 'failed', error: { code: 'command_not_started' } }]);
  });

  test('closes on messages that it does not understand, or that are too long', async () => {
    for (const [message, code] of [
      ['not json', 1008],
      ['null', 1008],
      ['{"type":"resize","rows":"24","cols":1}', 1008],
      ['{"type":"resize","cols":1}', 1008],
      [Buffer.alloc(64 * 1024 + 1), 1009],
    ] as const) {
      const terminal = await open();
      terminal.socket.send(message);
      expect([String(message).slice(0, 40), await terminal.closed]).toEqual([
        String(message).slice(0, 40),
        code,
      ]);
    }
  });

  test('stops the command while the client does not read', async () => {
    const terminal = await open({
      cmd: 'sh',
      args: ['-c', 'dd if=/dev/zero bs=1000 count=20000 2>/dev/null | busybox tr "\\0" x; touch /tmp/all'],
    });
    terminal.socket.pause();
    const before = process.memoryUsage().rss;
    const isOver = async () => (await execIn(id, 'ls', '/tmp')).includes('all');
    for (let round = 0; round < 10; round += 1) expect(await isOver()).toBe(false);
    expect(process.memoryUsage().rss - before).toBeLessThan(64 * 1024 * 1024);
    terminal.socket.resume();
    await terminal.closed;
    expect(terminal.text().replaceAll(/[^x]/g, '').length).toBe(20_000_000);
  });

  test('keeps tickets and variables out of the log and, unsealed, out of the database', async () => {
    const ticket = await ticketFor({ env: { TOKEN: 'canary-variable' } });
    const { rows } = await inside.service.ctx.pool.query('select t::text as row from terminal_tickets t');
    const stored = rows.map(({ row }) => String(row)).join('\n');
    expect(stored).not.toContain(Buffer.from('canary-variable').toString('hex'));
    expect(stored).not.toContain(Buffer.from(ticket).toString('hex'));
    dial(ticket)
      .on('error', () => undefined)
      .terminate();
    const terminal = await open();
    terminal.socket.terminate();
    expect(inside.service.logs.join('\n')).not.toMatch(/skt_|canary-variable/);
  });

  test('has tickets only for keys with the scope, and for sandboxes of their organization', async () => {
    const other = await inside.service.newOrg();
    const path = `/v1/sandboxes/${id}/terminal-tickets`;
    expect((await other.post(path, {})).body.error.code).toBe('sandbox_not_found');
    const { body } = await inside.client.post('/v1/keys', { name: 'w', scopes: ['sandboxes:write'] });
    const refused = await inside.client.request('POST', path, { body: {}, key: body.key });
    expect(refused.body.error.code).toBe('insufficient_scope');
    for (const bad of [{ rows: -1 }, { cols: 70_000 }, { cmd: '' }, { env: { '': 'x' } }, { stdin: 'x' }]) {
      expect((await inside.client.post(path, bad)).status).toBe(400);
    }
  });

  function keyed(key: string): Pick<Client, 'key' | 'post'> {
    return { key, post: (path, body) => inside.client.request('POST', path, { body, key }) };
  }
});
