import { afterAll, beforeAll, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { FULL_ACCESS } from '../../../src/access/access.js';
import { createKey } from '../../../src/keys/create.js';
import { makeClient, type Client } from '../../support/client.js';
import { onDocker } from '../../support/docker-service.js';
import { describeDocker, execIn } from '../../support/docker.js';
import { startInside, type Inside } from '../../support/inside.js';
import { until } from '../../support/polling.js';
import { startTestService } from '../../support/service.js';
import { codeOf } from '../../support/volume-files.js';

/** The rows of the table in docs/sessions.md in which the sandbox goes on. */
describeDocker('a command under an idempotency key that is cut', () => {
  let inside: Inside;
  beforeAll(async () => {
    inside = await startInside();
  });
  afterAll(() => inside.close());

  /** A command that leaves a mark for each time it runs. The first time it does not end. */
  async function prepare(key: string) {
    const box = await inside.start(key);
    const script = 'echo x >>/ran; [ $(wc -l </ran) -gt 1 ] || exec sleep 4325; echo again';
    const run = (from: Pick<Client, 'request'> = inside.client) =>
      from.request('POST', `/v1/sandboxes/${box}/exec`, {
        body: { cmd: 'sh', args: ['-c', script] },
        headers: { 'idempotency-key': key },
      });
    const processes = () => execIn(box, 'busybox', 'ps');
    return {
      run,
      runs: () => until(processes, (text) => text.includes('sleep 4325'), 30_000),
      isKilled: () => until(processes, (text) => !text.includes('sleep 4325'), 30_000),
      times: () => execIn(box, 'busybox', 'wc', '-l', '/ran'),
    };
  }

  test('by the end of its key runs again for another key', async () => {
    const { run, runs, isKilled, times } = await prepare('key-revoked');
    const { org, url } = inside.client;
    const { pool } = inside.service.ctx;
    const { id: keyId, key } = await createKey(pool, org.id, 'short', operator('test'), FULL_ACCESS);
    const own = makeClient(url, { org, key, keyId });
    const cut = run(own);
    await runs();
    await inside.client.delete(`/v1/keys/${keyId}`);
    expect(codeOf(await cut)).toEqual([401, 'invalid_api_key']);
    await isKilled();
    expect(await times()).toMatch(/^1 /);
    expect(codeOf(await run(own))).toEqual([401, 'invalid_api_key']);
    expect((await run()).body).toMatchObject({ exit_code: 0, stdout: 'again\n' });
    const { headers } = await run();
    expect([headers.get('idempotency-replayed'), await times()]).toEqual([
      'true',
      expect.stringMatching(/^2 /),
    ]);
  });

  test.each(['stops', 'crashes'])('by a service that %s runs again', async (how) => {
    const { run, runs, isKilled, times } = await prepare(`service-${how}`);
    const { service, client } = inside;
    const { pool } = service.ctx;
    const other = await startTestService({
      beside: service,
      sameEngine: true,
      worker: false,
      runtime: onDocker().runtime!,
    });
    const cut = run(makeClient(other.url, client, { patience: 0 }));
    await runs();
    expect(codeOf(await run())).toEqual([409, 'idempotency_conflict']);
    const { rows } = await pool.query('select * from idempotency_keys where key = $1', [`service-${how}`]);
    await other.close();
    expect(codeOf(await cut)).toEqual([503, 'not_ready']);
    await isKilled();
    if (how === 'crashes') {
      // A process that is killed leaves the claim of its request, which nobody renews.
      const { org_id, key, fingerprint, claim } = rows[0]!;
      await pool.query(
        `insert into idempotency_keys (org_id, key, fingerprint, claim, created_at) values ($1, $2, $3, $4, now())`,
        [org_id, key, fingerprint, claim],
      );
      expect(codeOf(await run())).toEqual([409, 'idempotency_conflict']);
      await pool.query(
        `update idempotency_keys set created_at = now() - interval '61 seconds' where key = $1`,
        [key],
      );
    }
    expect(await times()).toMatch(/^1 /);
    expect((await run()).body).toMatchObject({ exit_code: 0, stdout: 'again\n' });
    expect((await run()).headers.get('idempotency-replayed')).toBe('true');
    expect(await times()).toMatch(/^2 /);
  });
});
