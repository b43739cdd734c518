import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { AgentClient } from '../../support/agent-client.js';
import { describeDocker } from '../../support/docker.js';
import { startInside, type Inside } from '../../support/inside.js';
import { until } from '../../support/polling.js';

describeDocker('TCP connections on the agent channel', () => {
  let inside: Inside;
  let id: string;
  let agent: AgentClient;
  beforeAll(async () => {
    inside = await startInside();
    id = await inside.start('box');
    const servers = await AgentClient.open(inside.client, id);
    // One echoes, and one counts its input and answers at its end.
    const { stdout } = await servers.outcome(
      servers.sh(
        'busybox nc -ll -p 7001 -e cat >/dev/null 2>&1 & busybox nc -ll -p 7002 -e busybox wc -c >/dev/null 2>&1 & echo up',
      ),
    );
    expect(stdout).toBe('up\n');
    servers.close();
  });
  afterAll(() => inside.close());
  beforeEach(async () => {
    agent?.close();
    agent = await AgentClient.open(inside.client, id);
  });

  const connect = (host: string, port: number) => agent.start('core.tcp.connect', { host, port });
  const data = (session: number, text: string | Buffer) =>
    agent.send(session, 'core.tcp.data', { data: Buffer.from(text) });

  async function connected(port: number): Promise<number> {
    return until(
      async () => {
        const session = connect('127.0.0.1', port);
        return (await agent.next(session)).type === 'core.tcp.connected' ? session : 0;
      },
      (session) => session !== 0,
    );
  }

  test('carry data in both directions until either side closes', async () => {
    const session = await connected(7001);
    data(session, 'hello');
    const { payload } = await agent.next(session, 'core.tcp.data');
    expect(Buffer.from(payload.data).toString()).toBe('hello');
    agent.send(session, 'core.tcp.data', { data: 'text' });
    expect((await agent.next(session, 'core.error')).payload.kind).toBe('invalid_payload');
    agent.send(session, 'core.tcp.close', {});
    expect((await inside.endOf(id, 'closed')).kind).toBe('tcp');
  });

  test('are half-closed by an end of the input', async () => {
    const session = await connected(7002);
    for (let part = 0; part < 32; part++) data(session, Buffer.alloc(65_536));
    agent.send(session, 'core.tcp.eof', {});
    const messages = await agent.all(session);
    const text = Buffer.concat(
      messages.filter(({ type }) => type === 'core.tcp.data').map(({ payload }) => payload.data),
    );
    expect(text.toString().trim()).toBe(String(32 * 65_536));
    expect(messages.map(({ type }) => type)).toContain('core.tcp.eof');
    expect(messages.at(-1)).toMatchObject({ type: 'core.tcp.closed', flags: 1 });
  });

  test('that fail say why', async () => {
    const refused = await agent.next(connect('127.0.0.1', 1));
    expect(refused).toMatchObject({
      type: 'core.tcp.failed',
      flags: 1,
      payload: { error: expect.stringMatching(/refused/i) },
    });
    for (const request of [
      { host: '127.0.0.1', port: 0 },
      { host: '127.0.0.1', port: 70_000 },
      { host: 7, port: 80 },
      { port: 80 },
    ]) {
      const { type, payload } = await agent.next(agent.start('core.tcp.connect', request));
      expect([type, payload.error]).toEqual(['core.tcp.failed', expect.stringMatching(/must be/)]);
    }
    expect((await inside.endOf(id, 'failed')).kind).toBe('tcp');
  });

  test('close with the connection of the client', async () => {
    await connected(7001);
    agent.close();
    expect((await inside.endOf(id, 'client_left')).kind).toBe('tcp');
  });
});
