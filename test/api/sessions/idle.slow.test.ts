import { afterAll, beforeAll, expect, test } from 'vitest';
import { AgentClient } from '../../support/agent-client.js';
import type { Client } from '../../support/client.js';
import { destroyAll, onDocker } from '../../support/docker-service.js';
import { describeDocker, IMAGE, makeImage } from '../../support/docker.js';
import { untilStatus } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

/** A sandbox is entered, and has its first activity, in this time: four at once, on a busy machine. */
const IDLE_SECS = 10;

describeDocker('the idle time-out of a sandbox', () => {
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    makeImage();
    service = await startTestService({ ...onDocker(), settings: { stopGraceMs: 500 } });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
  });

  async function enter(name: string): Promise<{ id: string; channel: AgentClient }> {
    const request = smallRequest(name, {
      image: { type: 'oci', reference: IMAGE },
      pull_policy: 'never',
      runtime: { cmd: ['sleep', '3600'] },
      lifecycle: { idle_timeout_secs: IDLE_SECS },
    });
    const query = { start: true, wait_for: 'running', wait_timeout: 120 };
    const { body } = await client.post('/v1/sandboxes', request, query);
    expect(body.status).toBe('running');
    return { id: body.id, channel: await AgentClient.open(client, body.id) };
  }
  const statusOf = async (id: string) => (await client.get(`/v1/sandboxes/${id}`)).body.status;

  test('waits for an open command, for messages and for operations on files, but not for pings', async () => {
    const [quiet, touched, reading, pinged] = await Promise.all(
      ['quiet', 'touched', 'reading', 'pinged'].map(enter),
    );
    const timer = setInterval(() => {
      touched!.channel.send(0xffff, 'core.touch', {});
      pinged!.channel.send(0xffff, 'core.ping', {});
      void reading!.channel.fs({ Stat: { path: '/', follow_symlink: true } }).catch(() => undefined);
    }, 300);
    const command = quiet!.channel.exec('sleep', ['3600']);
    await quiet!.channel.next(command, 'core.exec.started');
    await untilStatus(client, pinged!.id, 'stopped');
    // Twice the time-out, counted from the end of a sandbox without activity.
    await new Promise((resolve) => setTimeout(resolve, 2 * IDLE_SECS * 1_000));
    expect(await Promise.all([quiet!, touched!, reading!].map(({ id }) => statusOf(id)))).toEqual([
      'running',
      'running',
      'running',
    ]);
    clearInterval(timer);
    quiet!.channel.socket.close();
    for (const { id } of [quiet!, touched!, reading!]) {
      const { body } = await untilStatus(client, id, 'stopped');
      expect(body.status).toBe('stopped');
    }
  });
});
