import { expect, test } from 'vitest';
import { NO_METERS } from '../../../src/lib/meters.js';
import { openTelemetry } from '../../../src/telemetry/open-telemetry.js';
import { startCollector } from '../../support/collector.js';
import { operations } from '../../support/openapi.js';
import { startTestService } from '../../support/service.js';
import { fullRequest } from '../../support/sandbox-requests.js';

const CANARIES = ['canary-value', 'canary-password', 'canary-unknown', 'canary-broken', 'canary-env'];

test('secrets of a request appear in no answer, event, log or trace, and nowhere in the database', async () => {
  const collector = await startCollector();
  const telemetry = await openTelemetry(collector.options({ otlpProtocol: 'http/json' }), NO_METERS);
  const service = await startTestService({ telemetry });
  try {
    const client = await service.newOrg();
    const { body: volume } = await client.post('/v1/volumes', { name: 'data' });
    const texts: string[] = [];
    const send = async (method: string, path: string, body?: unknown, query = '') => {
      const answer = await client.request(method, path, { query, ...(body === undefined ? {} : { body }) });
      texts.push(answer.text, JSON.stringify([...answer.headers]));
      return answer;
    };
    const request = fullRequest('secretive', 'data') as any;
    request.env.push({ key: 'SEALED', value: 'canary-env', secret: true });
    request.vault_path = 'canary-unknown';
    const made = await send('POST', '/v1/sandboxes', request, 'start=true&wait_for=running');
    expect(made.body.status).toBe('running');
    expect(made.body.spec.env.at(-1)).toEqual({ key: 'SEALED', value: '***', secret: true });
    // Refusals of every kind, with the secret in the request.
    await send('POST', '/v1/sandboxes', request);
    await send('POST', '/v1/sandboxes', { ...request, name: '' });
    const { env } = request;
    await send('POST', '/v1/sandboxes', { ...request, env: [{ ...env.at(-1), value: ['canary-env'] }] });
    const ticket = { env: [env.at(-1)], cmd: '/bin/sh' };
    await send('POST', `/v1/sandboxes/${made.body.id}/terminal-tickets`, ticket);
    await send('POST', '/v1/registry-credentials', {
      pattern: 'ghcr.io',
      username: 'robot',
      password: 'canary-password',
    });
    await send('POST', `/v1/sandboxes/${made.body.id}/exec`, { cmd: 'true', env: [env.at(-1)] });
    const { secrets } = request.network;
    const unknown = { ...request.network, secrets: { ...secrets, vault_path: 'canary-unknown' } };
    await send('POST', '/v1/sandboxes', { ...request, network: unknown });
    await send('POST', '/v1/sandboxes', { ...request, registry: { ...request.registry, username: 1 } });
    await send(
      'POST',
      '/v1/sandboxes',
      JSON.stringify(request).replace('canary-value', 'canary-broken" oops'),
    );
    request.network.secrets.entries[0].value = ['canary-value'];
    await send('POST', '/v1/sandboxes', request);
    // The log stream of a running sandbox is endless.
    const reads = operations.filter(({ method, path }) => method === 'GET' && !/\/(logs|agent)$/.test(path));
    for (const { method, path } of reads) {
      await send(method, path.replace('{name}', 'secretive').replace('{sandbox_id}', made.body.id));
    }
    await send('POST', `/v1/sandboxes/${made.body.id}/stop`, {});
    await send('DELETE', `/v1/sandboxes/${made.body.id}`);

    const { rows: tables } = await service.ctx.pool.query<{ name: string }>(
      "select relname as name from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'",
    );
    expect(tables.length).toBeGreaterThan(8);
    for (const { name } of tables) {
      const { rows } = await service.ctx.pool.query<{ row: string }>(`select t::text as row from ${name} t`);
      texts.push(...rows.map(({ row }) => row));
    }
    await telemetry.close();
    expect(collector.spans.length).toBeGreaterThan(reads.length);
    expect(collector.logs.length).toBeGreaterThan(reads.length);
    texts.push(...collector.texts);
    expect(texts.join('\n')).toContain('secretive');
    // Traces have neither names nor organizations.
    expect(JSON.stringify(collector.spans)).not.toContain('secretive');
    expect(JSON.stringify(collector.spans)).not.toContain(client.org.id);
    const everything = [...texts, ...service.logs].join('\n');
    for (const canary of CANARIES) expect(everything).not.toContain(canary);
    expect(everything).not.toContain(client.key);
    // The view of a sandbox does not show the id of its volume.
    expect(made.text).not.toContain(volume.id);
  } finally {
    await service.close();
    await collector.close();
  }
});
