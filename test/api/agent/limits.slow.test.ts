import { encode } from 'cborg';
import type { Socket } from 'node:net';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { sleep } from '../../../src/lib/sleep.js';
import { encodeEnvelope } from '../../../src/sandboxes/agent/envelope.js';
import { AgentClient } from '../../support/agent-client.js';
import { describeDocker, execIn } from '../../support/docker.js';
import { startInside, type Inside } from '../../support/inside.js';
import { until } from '../../support/polling.js';

const MIB = 1024 * 1024;

describeDocker('the limits of the agent channel', () => {
  let inside: Inside;
  let id: string;
  let agent: AgentClient;
  beforeAll(async () => {
    inside = await startInside();
    id = await inside.start('box');
  });
  afterAll(() => inside.close());
  beforeEach(async () => {
    agent?.close();
    agent = await AgentClient.open(inside.client, id);
  });

  const works = async () => expect((await agent.outcome(agent.exec('true'))).last.payload.code).toBe(0);

  /** Resolves with the bytes that the service does not take from the client, when there are no fewer for a while. */
  async function refusedBytes(): Promise<number> {
    let last = -1;
    return until(
      async () => {
        await sleep(300);
        const before = last;
        last = agent.socket.bufferedAmount;
        return { before, last };
      },
      (seen) => seen.before === seen.last,
    ).then((seen) => seen.last);
  }

  test('answer pings and touches, ignore unknown types, and name wrong flags', async () => {
    for (const [type, answer] of [
      ['core.ping', 'core.pong'],
      ['core.touch', 'core.touched'],
    ] as const) {
      expect(await agent.next(agent.start(type, {}))).toMatchObject({ type: answer, flags: 1, payload: {} });
    }
    agent.send(agent.id(), 'core.new', { any: 1 });
    const wrong = agent.id();
    agent.send(wrong, 'core.exec.request', { cmd: 'true' });
    expect(await agent.next(wrong)).toMatchObject({
      type: 'core.error',
      flags: 1,
      payload: { kind: 'invalid_flags', offending_type: 'core.exec.request' },
    });
    const session = agent.exec('cat');
    agent.send(session, 'core.exec.stdin', { data: Buffer.from('lost') }, 2);
    expect((await agent.next(session, 'core.error')).payload.kind).toBe('invalid_flags');
    agent.stdin(session, 'kept');
    agent.stdin(session);
    expect((await agent.outcome(session)).stdout).toBe('kept');
  });

  test('refuse a program that is a deep list, and limits with names of JavaScript', async () => {
    for (let depth = 3000; depth < 3700; depth += 50) {
      const client = await AgentClient.open(inside.client, id);
      const list = Buffer.concat([
        Buffer.from('a163636d64', 'hex'),
        Buffer.alloc(depth, 0x81),
        Buffer.from([0]),
      ]);
      const body = encode({ v: 7, t: 'core.exec.request', p: list });
      const head = Buffer.from('000000000000000902', 'hex');
      head.writeUInt32BE(body.length + 5);
      client.write(Buffer.concat([head, body]));
      await until(
        async () => client.messages.length,
        (count) => count > 0,
      );
      client.close();
    }
    for (const resource of ['constructor', '__proto__']) {
      const session = agent.exec('true', [], { rlimits: [{ resource, soft: 1, hard: 1 }] });
      expect((await agent.outcome(session)).last.payload).toMatchObject({ kind: 'resource_limit' });
    }
    await works();
  });

  test('end a connection that breaks the protocol, and its commands', async () => {
    const tooLong = Buffer.alloc(9);
    tooLong.writeUInt32BE(4 * MIB + 1, 0);
    const noCbor = Buffer.from('000000060000000100ff', 'hex');
    for (const bytes of [tooLong, noCbor]) {
      const client = await AgentClient.open(inside.client, id);
      client.exec('sleep', ['81']);
      await client.next(1, 'core.exec.started');
      const evil = encodeEnvelope(9, 2, 'core.exec.request', {
        cmd: 'busybox',
        args: ['touch', '/tmp/evil'],
      });
      client.write(Buffer.concat([bytes, evil]));
      client.write(evil);
      expect(await client.next(0, 'core.error')).toMatchObject({
        flags: 1,
        payload: { kind: 'protocol_error' },
      });
      await until(
        () => Promise.resolve(client.closed),
        (closed) => closed !== undefined,
      );
    }
    await until(
      () => execIn(id, 'busybox', 'ps'),
      (text) => !text.includes('sleep 81'),
      30_000,
    );
    expect(await execIn(id, 'ls', '/tmp')).not.toContain('evil');
    await works();
  });

  test('take frames of 4 MiB, answer WebSocket pings, and ignore text messages', async () => {
    const session = agent.sh('busybox wc -c');
    agent.stdin(session, Buffer.alloc(4 * MIB - 100));
    agent.stdin(session);
    expect((await agent.outcome(session)).stdout.trim()).toBe(String(4 * MIB - 100));
    agent.socket.send('core.exec.request');
    const answered = new Promise((resolve) => agent.socket.once('pong', (data) => resolve(String(data))));
    agent.socket.ping('hello');
    expect(await answered).toBe('hello');
    await works();
  });

  test('stop a command whose output the client does not read', async () => {
    const session = agent.sh('busybox head -c 104857600 /dev/zero; : >/tmp/written');
    await agent.next(session, 'core.exec.stdout');
    agent.socket.pause();
    await sleep(1_500);
    expect(await execIn(id, 'ls', '/tmp')).not.toContain('written');
    agent.socket.resume();
    await agent.next(session, 'core.exec.exited');
    expect(agent.bytes).toBeGreaterThan(100 * MIB);
    expect(await execIn(id, 'ls', '/tmp')).toContain('written');
  });

  /** A command that reads nothing, and a function that kills it. */
  async function deaf(): Promise<{ session: number; kill: () => Promise<string> }> {
    const session = agent.sh('echo $$; exec sleep 82');
    const { payload } = await agent.next(session, 'core.exec.stdout');
    return { session, kill: () => execIn(id, 'sh', '-c', `kill ${Buffer.from(payload.data).toString()}`) };
  }

  test('stop a client whose command does not read, and continue when it has ended', async () => {
    const { session, kill } = await deaf();
    for (let part = 0; part < 40; part++) agent.stdin(session, Buffer.alloc(MIB));
    expect(await refusedBytes()).toBeGreaterThan(20 * MIB);
    await kill();
    expect((await agent.outcome(session)).last.payload.code).toBe(143);
    await works();
  });

  test('count small messages by the memory that they need', async () => {
    const { session, kill } = await deaf();
    const tiny = encodeEnvelope(session, 0, 'core.exec.stdin', { data: Buffer.from('x') });
    // It fills the pipe of the command and the window of the sandbox.
    agent.stdin(session, Buffer.alloc(MIB));
    for (let part = 0; part < 30; part++) agent.write(Buffer.concat(Array(10_000).fill(tiny)));
    expect(await refusedBytes()).toBeGreaterThan(MIB);
    await kill();
    expect((await agent.outcome(session)).last.payload.code).toBe(143);
    await works();
  });

  test('stop a client that does not read its answers', async () => {
    const wrong = encodeEnvelope(7, 2, 'x'.repeat(100), {});
    agent.socket.pause();
    for (let part = 0; part < 100; part++) agent.write(Buffer.concat(Array(1_000).fill(wrong)));
    expect(await refusedBytes()).toBeGreaterThan(3 * MIB);
    agent.socket.resume();
    await until(
      () => Promise.resolve(agent.messages.length),
      (count) => count === 100_000,
    );
    agent.messages.length = 0;
    await works();
  });

  test('hold for a client whose key was revoked and that does not leave', async () => {
    const owner = await inside.service.newOrg();
    const own = await inside.start('own', {}, owner);
    const key = (await owner.post('/v1/keys', { name: 'short', scopes: ['sandboxes:exec'] })).body;
    expect(key).toMatchObject({ key: expect.any(String) });
    const client = await AgentClient.open({ url: owner.url, key: key.key }, own);
    client.exec('sleep', ['84']);
    await client.next(1, 'core.exec.started');
    client.socket.pause();
    expect((await owner.delete(`/v1/keys/${key.id}`)).status).toBe(200);
    await until(
      () => execIn(own, 'busybox', 'ps'),
      (text) => !text.includes('sleep 84'),
      30_000,
    );
    client.exec('busybox', ['touch', '/tmp/evil']);
    client.start('core.fs.request', { op: { Mkdir: { path: '/tmp/evil2', mode: null } } });
    await sleep(1_000);
    expect(await execIn(own, 'ls', '/tmp')).not.toContain('evil');
    client.close();
  });

  test('cut a long name of a user in the audit trail', async () => {
    const { last } = await agent.outcome(agent.exec('true', [], { user: 'u'.repeat(100_000) }));
    expect(last.payload.kind).toBe('user_setup_failed');
    expect((await inside.endOf(id, 'user_setup_failed')).user).toBe('u'.repeat(200));
  });

  test('cut off clients whose organization has too many bytes in incomplete messages', async () => {
    const neighbour = await inside.service.newOrg();
    const bytes = 4 * MIB;
    const head = Buffer.from('82ff0000000000000000aabbccdd', 'hex');
    head.writeBigUInt64BE(BigInt(bytes) + 1n, 2);
    const clients: AgentClient[] = [];
    for (let opened = 0; opened < 40; opened += 1) {
      const client = await AgentClient.open(inside.client, id);
      clients.push(client);
      const { _socket: socket } = client.socket as unknown as { _socket: Socket };
      socket.on('error', () => undefined);
      socket.write(Buffer.concat([head, Buffer.alloc(bytes)]));
    }
    const open = await until(
      async () => clients.filter(({ closed }) => !closed).length,
      (count) => count <= (128 * MIB) / bytes,
    );
    expect(open).toBeGreaterThan(20);
    expect((await neighbour.get('/v1/sandboxes')).status).toBe(200);
    for (const client of clients) client.close();
    await works();
  });

  test('bound what a directory of many entries needs', async () => {
    const long = 'd'.repeat(250);
    await agent.outcome(
      agent.sh(
        `cd /tmp; for n in 1 2 3 4 5 6 7 8 9 10 11 12; do busybox mkdir ${long}; cd ${long}; done; for n in $(busybox seq 3000); do : >f$n; done`,
      ),
    );
    const path = `/tmp/${`${long}/`.repeat(12)}`;
    expect(await agent.fs('List', { path })).toEqual({
      ok: false,
      error: 'the directory has too many entries for a list',
      data: null,
    });
    const { Handle: handle } = (await agent.fs('OpenDir', { path })).data;
    expect((await agent.fs('ReadDir', { handle })).ok).toBe(true);
  });
});

describeDocker('the rate of a key', () => {
  test('counts the sessions of a connection', async () => {
    const inside = await startInside({ settings: { rateLimit: 2 } });
    try {
      const id = await inside.start('box');
      const { body } = await inside.client.post('/v1/keys', { name: 'fast', scopes: ['sandboxes:exec'] });
      const agent = await AgentClient.open({ url: inside.service.url, key: body.key }, id);
      // Twenty units in a window of ten seconds. A busy machine runs few commands until its end, so they begin at once.
      const { refusals, refused } = await until(
        async () => {
          const sessions = Array.from({ length: 30 }, () => agent.exec('true'));
          const outcomes = await Promise.all(sessions.map((session) => agent.outcome(session)));
          const failed = outcomes.filter(({ last }) => last.type === 'core.exec.failed');
          const stat = await agent.fs('Stat', { path: '/', follow_symlink: true });
          return {
            refusals: failed.map(({ last }) => last.payload.message as string),
            refused: stat.error as string | null,
          };
        },
        (found) => found.refusals.length > 0 && found.refused !== null,
      );
      expect(refusals[0]).toMatch(/^spawn "true": too many requests of the key: wait \d+ s$/);
      expect(refused).toMatch(/^too many requests/);
      agent.close();
    } finally {
      await inside.close();
    }
  });
});
