import { Buffer } from 'node:buffer';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { operator } from '../../src/audit/events/actor.js';
import { forgetAll } from '../../src/secrets/secrets.js';
import type { Client } from '../support/client.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { describeDocker, IMAGE, makeImage } from '../support/docker.js';
import { until, untilStatus } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

const SECRET = 'correct horse battery';
const running = { start: true, wait_for: 'running', wait_timeout: 120 };

describeDocker('secret variables of a docker sandbox', () => {
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

  async function make(name: string): Promise<string> {
    const { body, text } = await client.post(
      '/v1/sandboxes',
      {
        name,
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        network: { enabled: false },
        runtime: { cmd: ['sh', '-c', 'echo "$TOKEN, $PLAIN"; sleep 3600'] },
        env: [
          { key: 'TOKEN', value: 'replaced', secret: true },
          { key: 'TOKEN', value: SECRET, secret: true },
          { key: 'PLAIN', value: 'seen', secret: false },
        ],
      },
      running,
    );
    expect(body.status, text).toBe('running');
    expect(body.spec.env).toEqual([
      { key: 'TOKEN', value: '***', secret: true },
      { key: 'PLAIN', value: 'seen' },
    ]);
    return body.id;
  }

  test('are given to commands, and masked in output and logs on request, also after a restart', async () => {
    const id = await make('keeps');
    const exec = async (more: Record<string, unknown> = {}) =>
      (
        await client.post(`/v1/sandboxes/${id}/exec`, {
          cmd: 'sh',
          args: ['-c', 'echo "$TOKEN $OWN $PLAIN"'],
          env: [{ key: 'OWN', value: 'of this command', secret: true }],
          ...more,
        })
      ).body;
    expect((await exec()).stdout).toBe(`${SECRET} of this command seen\n`);
    expect((await exec({ mask_secrets: true })).stdout).toBe('*** *** seen\n');
    const { stdout } = await exec({ mask_secrets: true, output_encoding: 'base64' });
    expect(Buffer.from(stdout as string, 'base64').toString()).toBe('*** *** seen\n');
    const events = await fetch(`${client.url}/v1/sandboxes/${id}/exec`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${client.key}`,
        accept: 'text/event-stream',
        'content-type': 'application/json',
      },
      // In two writes, which come as two pieces.
      body: JSON.stringify({
        cmd: 'sh',
        args: ['-c', 'printf "%s" "${TOKEN%battery}"; sleep 0.3; echo battery'],
        mask_secrets: true,
      }),
    });
    const shown = [...(await events.text()).matchAll(/"text":"([^"]*)"/g)].map(([, text]) => text).join('');
    expect(shown).toBe('***\\n');

    await client.post(`/v1/sandboxes/${id}/stop`, {}, { wait_for: 'stopped', wait_timeout: 120 });
    const lines = async (query: string) => {
      const headers = { authorization: `Bearer ${client.key}` };
      return (await fetch(`${client.url}/v1/sandboxes/${id}/logs${query}`, { headers })).text();
    };
    // The engine reports an end before the last output is written.
    await until(
      () => lines(''),
      (text) => text.includes(`${SECRET}, seen`),
    );
    const masked = await lines('?mask_secrets=true');
    expect(masked).toContain('***, seen');
    expect(masked).not.toContain('horse');
    await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running', wait_timeout: 120 });
    expect((await exec()).stdout).toContain(SECRET);
  });

  test('whose keys are lost let no sandbox start without them', async () => {
    const { body } = await client.post('/v1/sandboxes', {
      name: 'forgotten',
      image: { type: 'oci', reference: IMAGE },
      pull_policy: 'never',
      network: { enabled: false },
      env: [{ key: 'TOKEN', value: SECRET, secret: true }],
    });
    await forgetAll(service.ctx.pool, service.ctx.keyring(), operator('test'));
    await client.post(`/v1/sandboxes/${body.id}/start`, {});
    const failed = await untilStatus(client, body.id as string, 'failed');
    expect(failed.body.last_failure_message).toContain('secret variable TOKEN');
  });
});
