import { once } from 'node:events';
import { readdirSync, statSync } from 'node:fs';
import { get, type IncomingMessage } from 'node:http';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { FULL_ACCESS, type Access } from '../../../src/access/access.js';
import { createKey } from '../../../src/keys/create.js';
import { AgentClient, type Refusal } from '../../support/agent-client.js';
import type { Client } from '../../support/client.js';
import { makeClient } from '../../support/client.js';
import { destroyAll, onDocker } from '../../support/docker-service.js';
import { containerOf, describeDocker, IMAGE, makeImage } from '../../support/docker.js';
import { until, untilStatus } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

/** A session may outlive its right by a second; the rest is for a busy machine. Without the check it lasts for days. */
const SOON_MS = 60_000;
const running = { start: true, wait_for: 'running', wait_timeout: 120 };

describeDocker('a session in a sandbox ends', () => {
  let service: TestService;
  /** Another process, without an engine of its own. */
  let front: TestService;
  let client: Client;
  let id: string;
  beforeAll(async () => {
    makeImage();
    // A busy machine may answer a ping, or renew a session, seconds late.
    const settings = { stopGraceMs: 500, channelPingMs: 3_000, sessionLostMs: 20_000, keyUseWriteMs: 100 };
    service = await startTestService({
      ...onDocker(),
      settings: { ...settings, maxVisits: 16, maxVisitsOfSandbox: 6 },
    });
    front = await startTestService({ beside: service, worker: false, settings });
    client = await service.newOrg();
    id = await make('home');
  });
  afterAll(async () => {
    await front.close();
    await destroyAll(service, client);
    await service.close();
  });

  async function make(name: string, part: object = {}): Promise<string> {
    const request = smallRequest(name, {
      image: { type: 'oci', reference: IMAGE },
      pull_policy: 'never',
      runtime: { cmd: ['sleep', '3600'] },
      ...part,
    });
    const { body } = await client.post('/v1/sandboxes', request, running);
    expect(body.status).toBe('running');
    return body.id;
  }
  async function keyWith(access: Partial<Access>): Promise<Client> {
    const { id: keyId, key } = await createKey(service.ctx.pool, client.org.id, 'some', operator('test'), {
      ...FULL_ACCESS,
      ...access,
    });
    return makeClient(service.url, { org: client.org, key, keyId });
  }
  /** The payloads, the latest first. */
  const eventsOf = async (sandboxId: string, type: string): Promise<any[]> => {
    const { rows } = await service.ctx.pool.query(
      'select payload from events where resource_id = $1 and event_type = $2 order by occurred_at desc, id desc',
      [sandboxId, type],
    );
    return rows.map(({ payload }) => payload);
  };
  /** The processes of a sandbox whose arguments have the text. */
  async function processes(sandboxId: string, text: string): Promise<number> {
    const { Processes } = await (await containerOf(sandboxId))!.top();
    return Processes.filter((columns: string[]) => columns.at(-1)!.includes(text)).length;
  }
  async function expectNothingLeft(sandboxId: string, command: string): Promise<void> {
    await until(
      () => processes(sandboxId, command),
      (count) => count === 0,
    );
    await untilNoSession();
  }
  const untilNoSession = () =>
    until(
      async () => (await service.ctx.pool.query('select from sandbox_sessions')).rowCount,
      (rows) => rows === 0,
    );
  const entered: AgentClient[] = [];
  async function enter(from: Pick<Client, 'url' | 'key'>, sandboxId: string): Promise<AgentClient> {
    const channel = await AgentClient.open(from, sandboxId);
    entered.push(channel);
    return channel;
  }
  afterEach(() => {
    for (const { socket } of entered.splice(0)) socket.terminate();
  });
  let count = 0;
  /** A long command, with a number that tells its process apart. */
  async function begin(from: Pick<Client, 'url' | 'key'>, sandboxId = id) {
    const channel = await enter(from, sandboxId);
    const mark = String(1_000_000 + (count += 1));
    const command = channel.exec('sh', ['-c', `sleep ${mark}; true`]);
    await channel.next(command, 'core.exec.started');
    await until(
      () => processes(sandboxId, mark),
      (found) => found > 0,
    );
    return { channel, mark, command };
  }
  const reasonsSince = async (from: number, sandboxId = id) =>
    (await eventsOf(sandboxId, 'sandbox_session_ended'))
      .slice(0, -from || undefined)
      .map(({ reason }) => reason);
  const ended = async (sandboxId = id) => {
    await untilNoSession();
    return (await eventsOf(sandboxId, 'sandbox_session_ended')).length;
  };

  test('when its command ends, with exit code, duration and bytes', async () => {
    const channel = await enter(client, id);
    expect(await channel.run('sh', '-c', 'echo hello; exit 7')).toEqual({ code: 7, stdout: 'hello\n' });
    channel.socket.close();
    const end = await until(
      async () => (await eventsOf(id, 'sandbox_session_ended'))[0],
      (found) => found !== undefined,
    );
    expect(end).toMatchObject({
      kind: 'exec',
      program: 'sh',
      argument_count: 2,
      reason: 'exited',
      exit_code: 7,
    });
    expect(end).toMatchObject({ bytes_out: 6, bytes_in: 0, file_writes: 0, duration_ms: expect.any(Number) });
  });

  test.each(['close', 'terminate'] as const)('when the client leaves by %s', async (leave) => {
    for (const through of [service, front]) {
      const before = await ended();
      const { channel, mark } = await begin({ ...client, url: through.url });
      channel.socket[leave]();
      await expectNothingLeft(id, mark);
      expect(await reasonsSince(before)).toEqual(['client_left']);
    }
  });

  test('when the client is silent, and not while it only reads slowly', async () => {
    for (const through of [service, front]) {
      const before = await ended();
      const { channel, mark } = await begin({ ...client, url: through.url });
      channel.fallSilent();
      await expectNothingLeft(id, mark);
      expect(await reasonsSince(before)).toEqual(['client_left']);
      channel.socket.terminate();
    }
    const channel = await enter(client, id);
    const command = channel.exec('sh', ['-c', 'sleep 3; cat | wc -c']);
    const piece = Buffer.alloc(1024 * 1024);
    for (let sent = 0; sent < 24; sent += 1) channel.send(command, 'core.exec.stdin', { data: piece });
    channel.send(command, 'core.exec.stdin', { data: Buffer.alloc(0) });
    const { last, stdout } = await channel.outcome(command);
    expect([last.payload.code, stdout.trim()]).toEqual([0, String(24 * piece.length)]);
    channel.socket.close();
  });

  test.each(['revoked', 'expired', 'without the scope'])('when its key is %s', async (how) => {
    for (const through of [service, front]) {
      const before = await ended();
      const key = await keyWith({ scopes: ['sandboxes:exec'] });
      const { channel, mark } = await begin({ ...key, url: through.url });
      const at = performance.now();
      const change = async (to: string) =>
        service.ctx.pool.query(`update api_keys set ${to} where id = $1`, [key.keyId]);
      // Only now: the beginning takes any time on a busy machine.
      if (how === 'expired') await change("expires_at = now() + interval '1 second'");
      else if (how === 'revoked') await client.delete(`/v1/keys/${key.keyId}`);
      else await change("scopes = '{sandboxes:read}'");
      await channel.untilClosed();
      expect(performance.now() - at).toBeLessThan(SOON_MS);
      await expectNothingLeft(id, mark);
      expect(await reasonsSince(before)).toEqual(['key_revoked']);
    }
  });

  test('when its key is revoked: a download that its client does not read', async () => {
    const own = await make('download');
    await (await enter(client, own)).run('sh', '-c', 'head -c 67108864 /dev/zero >/big');
    const key = await keyWith({ scopes: ['sandboxes:exec'] });
    const address = `${service.url}/v1/sandboxes/${own}/files/content?path=/big`;
    const request = get(address, { headers: { authorization: `Bearer ${key.key}` } });
    const [answer] = (await once(request, 'response')) as [IncomingMessage];
    answer.pause();
    await client.delete(`/v1/keys/${key.keyId}`);
    const ends = await until(
      () => eventsOf(own, 'sandbox_session_ended'),
      (found) => found.some(({ kind }) => kind === 'files'),
    );
    expect(ends.find(({ kind }) => kind === 'files').reason).toBe('key_revoked');
    answer.on('error', () => undefined).resume();
    await new Promise((resolve) => answer.once('close', resolve));
    expect(answer.complete).toBe(false);
  });

  test('when the sandbox loses the label of its key', async () => {
    const key = await keyWith({ scopes: ['sandboxes:exec'], labels: { team: 'ml' } });
    for (const through of [service, front]) {
      await client.patch(`/v1/sandboxes/${id}`, { labels: { team: 'ml' } });
      const before = await ended();
      const { channel, mark } = await begin({ ...key, url: through.url });
      const at = performance.now();
      await client.patch(`/v1/sandboxes/${id}`, { labels: { team: 'web' } });
      await channel.untilClosed();
      expect(performance.now() - at).toBeLessThan(SOON_MS);
      await expectNothingLeft(id, mark);
      expect(await reasonsSince(before)).toEqual(['access_lost']);
    }
  });

  test('when another caller ends it, and the other sessions of its connection stay', async () => {
    for (const through of [service, front]) {
      const before = await ended();
      const { channel, mark, command } = await begin({ ...client, url: through.url });
      const other = channel.exec('sh', ['-c', `sleep 0${mark}; true`]);
      await channel.next(other, 'core.exec.started');
      const by = await keyWith({ scopes: ['sandboxes:exec'] });
      const listed = await client.get(`/v1/sandboxes/${id}/sessions`, { limit: 1 });
      expect(listed.body.has_more).toBe(true);
      const [session] = listed.body.data;
      expect(session).toMatchObject({
        kind: 'exec',
        program: 'sh',
        argument_count: 2,
        end_requested_at: null,
      });
      expect(session.actor).toMatchObject({ kind: 'api_key', api_key_id: client.keyId });
      const rest = await client.get(`/v1/sandboxes/by-name/home/sessions`, {
        limit: 1,
        cursor: listed.body.next_cursor,
      });
      expect([rest.body.data.length, rest.body.has_more]).toEqual([1, false]);

      // The request goes to the other one of both processes.
      const asker = { ...by, url: (through === service ? front : service).url };
      const at = performance.now();
      const answer = await makeClient(asker.url, asker).delete(`/v1/sandboxes/${id}/sessions/${session.id}`);
      expect([answer.status, answer.body]).toEqual([200, { message: 'the session ends' }]);
      const last = await channel.next(command, 'core.exec.exited');
      expect(performance.now() - at).toBeLessThan(SOON_MS);
      expect(last.payload.code).toBe(137);
      await until(
        () => processes(id, `sleep ${mark}`),
        (found) => found === 0,
      );
      expect(await processes(id, `sleep 0${mark}`)).toBeGreaterThan(0);
      await until(
        () => reasonsSince(before),
        (reasons) => reasons.length === 1,
      );
      expect(await reasonsSince(before)).toEqual(['session_ended']);
      const [asked] = await client
        .get('/v1/events', { event_type: 'sandbox_session_end_requested' })
        .then(({ body }) => body.data);
      expect(asked.payload.session_id).toBe(session.id);
      expect(asked.actor.api_key_id).toBe(by.keyId);
      expect((await client.delete(`/v1/sandboxes/${id}/sessions/${session.id}`)).body.error.code).toBe(
        'session_not_found',
      );
      channel.socket.close();
      await untilNoSession();
    }
  });

  test('when another caller ends it: a command by HTTP, a connection, files', async () => {
    const server = await enter(client, id);
    server.exec('sh', ['-c', 'busybox nc -l -p 4567 >/dev/null']);
    const endAll = async (kind: string) => {
      const found = await until(
        async () =>
          (await client.get(`/v1/sandboxes/${id}/sessions`)).body.data.filter(
            (session: any) => session.kind === kind && session.program !== 'sh',
          ),
        (sessions) => sessions.length > 0,
      );
      for (const session of found) await client.delete(`/v1/sandboxes/${id}/sessions/${session.id}`);
    };
    const sleeping = client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'sleep', args: ['7654321'] });
    await endAll('exec');
    expect([(await sleeping).status, (await sleeping).body.error.code]).toEqual([409, 'session_ended']);
    await until(
      () => processes(id, '7654321'),
      (found) => found === 0,
    );

    const channel = await enter(client, id);
    const [connection] = await until(
      async () => {
        const asked = channel.start('core.tcp.connect', { host: '127.0.0.1', port: 4567 });
        return [asked, (await channel.next(asked)).type] as const;
      },
      ([, type]) => type === 'core.tcp.connected',
    );
    await endAll('tcp');
    const { payload } = await channel.next(connection, 'core.tcp.failed');
    expect(payload.error).toContain('another caller');
    await channel.fs({ Stat: { path: '/tmp', follow_symlink: true } });
    await endAll('files');
    await channel.untilClosed();
    server.socket.close();
    await untilNoSession();
    const latest = (await eventsOf(id, 'sandbox_session_ended')).filter(
      ({ reason }) => reason === 'session_ended',
    );
    expect(latest.slice(0, 3).map(({ kind }) => kind)).toEqual(['files', 'tcp', 'exec']);
  });

  test.each(['stop', 'destroy', 'the end of the main process'])('with its sandbox: %s', async (how) => {
    const lifecycle = { ends_with_command: true };
    const sandbox = await make(how.replaceAll(' ', '-'), { lifecycle });
    const { channel, command } = await begin(client, sandbox);
    if (how === 'stop') await client.post(`/v1/sandboxes/${sandbox}/stop`, {});
    else if (how === 'destroy') await client.delete(`/v1/sandboxes/${sandbox}`);
    else await (await containerOf(sandbox))!.kill();
    // The client learns the end of its command first.
    const { payload } = await channel.next(command, 'core.exec.exited');
    expect(payload.code).toBe(137);
    await channel.untilClosed();
    const ends = await until(
      () => eventsOf(sandbox, 'sandbox_session_ended'),
      (found) => found.length > 0,
    );
    expect(ends).toMatchObject([{ reason: 'sandbox_stopped', exit_code: 137 }]);
  });

  test('when its agent is killed inside', async () => {
    const sandbox = await make('killed-agent');
    const { channel, mark } = await begin(client, sandbox);
    const other = await enter(client, sandbox);
    await other.run('sh', '-c', 'kill -9 -1').catch(() => undefined);
    await channel.untilClosed();
    await expectNothingLeft(sandbox, mark);
    const again = await enter(client, sandbox);
    expect((await again.run('echo', 'here')).stdout).toBe('here\n');
    again.socket.close();
    const opened = (await eventsOf(sandbox, 'sandbox_session_opened')).length;
    const ends = await until(
      () => eventsOf(sandbox, 'sandbox_session_ended'),
      (found) => found.length >= opened,
    );
    expect(new Set(ends.map((end) => end.session_id)).size).toBe(opened);
  });

  test('in the audit trail only, when its process is lost; a session whose end is recorded does not continue', async () => {
    const before = await ended();
    const { channel, mark } = await begin(client);
    // As another process does after it has seen no renewal.
    await service.ctx.pool.query('delete from sandbox_sessions');
    await channel.untilClosed();
    await expectNothingLeft(id, mark);
    expect(await ended()).toBe(before);
  });

  test('once, with its sandbox, after its process lost the lease on the engine', async () => {
    const { pool } = service.ctx;
    const sandbox = await make('leased');
    const { channel, mark, command } = await begin(client, sandbox);
    const { rows } = await pool.query(
      `update workers set holder = 'another', epoch = epoch + 1, expires_at = now() + interval '2 seconds'
       where id = $1 returning epoch`,
      [service.runtime.engineId],
    );
    // The session goes on: only changes to the sandbox itself need the lease.
    expect((await channel.run('echo', 'meanwhile')).stdout).toBe('meanwhile\n');
    await until(
      async () =>
        (await pool.query('select epoch from workers where id = $1', [service.runtime.engineId])).rows,
      ([worker]) => worker!.epoch > rows[0]!.epoch,
    );
    expect(await processes(sandbox, mark)).toBeGreaterThan(0);
    await client.post(`/v1/sandboxes/${sandbox}/stop`, {});
    expect((await channel.next(command, 'core.exec.exited')).payload.code).toBe(137);
    await channel.untilClosed();
    await untilNoSession();
    const ends = await eventsOf(sandbox, 'sandbox_session_ended');
    expect(ends.map(({ reason }) => reason)).toEqual(['sandbox_stopped', 'exited']);
  });

  test('without an open file or connection in the service', async () => {
    const visit = async (from: TestService) => {
      const channel = await enter({ ...client, url: from.url }, id);
      expect((await channel.run('echo', 'here')).stdout).toBe('here\n');
      channel.close();
      await channel.untilClosed();
    };
    const descriptors = () =>
      readdirSync('/proc/self/fd').map(
        (fd) => `${fd} ${statSync(`/proc/self/fd/${fd}`, { throwIfNoEntry: false })?.ino}`,
      );
    const rounds = async (count: number) => {
      for (let round = 0; round < count; round += 1) for (const from of [service, front]) await visit(from);
      await untilNoSession();
    };
    await rounds(2);
    const before = new Set(descriptors());
    await rounds(10);
    // A few are new connections to the database. Connections that close meanwhile must not hide others.
    await until(
      async () => descriptors().filter((one) => !before.has(one)),
      (added) => added.length < 10,
    );
  });

  test('without a trace in the limits: many visits one after another, and too many at once', async () => {
    const closed = async (channels: AgentClient[]) => {
      for (const { socket } of channels) socket.close();
      await Promise.all(channels.map((channel) => channel.untilClosed()));
    };
    const open = (url: string, sandboxId = id) =>
      until(
        () => enter({ ...client, url }, sandboxId).catch((error: unknown) => error),
        (made) => made instanceof AgentClient,
      ) as Promise<AgentClient>;
    const other = await make('other');
    for (let round = 0; round < 3; round += 1) {
      const urls = [service.url, front.url];
      const own = await Promise.all(Array.from({ length: 6 }, (_, at) => open(urls[at % 2]!)));
      const refused = (await enter(client, id).catch((error: unknown) => error)) as Refusal;
      expect([refused.status, JSON.parse(refused.text).error.code]).toEqual([429, 'rate_limited']);
      expect(refused.text).toContain('into this sandbox');
      // One sandbox leaves room for the others of the organization, and those of other organizations.
      const more = [await open(service.url, other), await open(front.url, other)];
      const full = (await enter(client, other).catch((error: unknown) => error)) as Refusal;
      expect([full.status, full.text]).toEqual([429, expect.stringContaining('into sandboxes')]);
      await closed([...own, ...more]);
    }
  });

  test('when the service shuts down, in time and with a record of each', async () => {
    const sandbox = await make('stopping');
    const own = await startTestService({
      beside: service,
      sameEngine: true,
      worker: false,
      runtime: onDocker().runtime!,
    });
    const channels = await Promise.all(
      Array.from({ length: 5 }, () => begin({ ...client, url: own.url }, sandbox)),
    );
    // One client does not read, and answers no close.
    channels[0]!.channel.fallSilent();
    const late = channels[1]!.channel;
    for (let index = 0; index < 5; index += 1) late.exec('sleep', ['1234567']);
    await once(late.socket, 'message');
    const at = performance.now();
    await own.close();
    expect(performance.now() - at).toBeLessThan(SOON_MS);
    const opened = (await eventsOf(sandbox, 'sandbox_session_opened')).length;
    const ends = await eventsOf(sandbox, 'sandbox_session_ended');
    expect(opened).toBeGreaterThanOrEqual(6);
    expect(ends.map(({ reason }) => reason)).toEqual(Array(opened).fill('service_stopped'));
    for (const { mark } of channels) await expectNothingLeft(sandbox, mark);
    await expectNothingLeft(sandbox, '1234567');
  });

  test('without a warning of too many listeners, whatever the number of visits', async () => {
    const warnings: Error[] = [];
    const note = (warning: Error) => warnings.push(warning);
    process.on('warning', note);
    const wide = await make('wide');
    const many = await Promise.all(Array.from({ length: 6 }, () => enter(client, wide)));
    await many[0]!.run('true');
    for (const { socket } of many) socket.close();
    process.off('warning', note);
    expect(warnings.map(({ message }) => message)).toEqual([]);
    await untilStatus(client, wide, 'running');
  });
});
