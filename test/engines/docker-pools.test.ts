import { afterAll, beforeAll, expect, test } from 'vitest';
import { announceChange } from '../../src/db/changes.js';
import { containerOf, describeDocker, docker, IMAGE } from '../support/docker.js';
import { startInside, type Inside } from '../support/inside.js';
import { until } from '../support/polling.js';
import { imageOf, newLayer, serve } from '../support/pulled-images.js';

const running = { start: true, wait_for: 'running' };

describeDocker('a pool of containers', () => {
  let inside: Inside;
  beforeAll(async () => {
    inside = await startInside();
  });
  afterAll(async () => {
    const { body } = await inside.client.get('/v1/pools');
    for (const { name } of body.data) await inside.client.delete(`/v1/pools/${name}`);
    await inside.close();
  });

  /** The worker of a busy machine may renew its lease too late: no container is ready then, and a create is cold. */
  const create = async (request: { name: string } & Record<string, unknown>) => {
    let attempt = 0;
    return until(
      async () => {
        attempt += 1;
        const named = { ...request, name: `${request.name}-${attempt}` };
        const { body } = await inside.client.post('/v1/sandboxes', named, running);
        if (body.source?.start !== 'warm') await inside.client.delete(`/v1/sandboxes/${body.id}`);
        return body;
      },
      ({ source }) => source?.start === 'warm',
    );
  };
  const put = async (name: string, request: object) => {
    const { status, text } = await inside.client.request('PUT', `/v1/pools/${name}`, { body: request });
    expect(status, text).toBe(200);
  };
  const whenReady = async (name: string, count: number) =>
    until(
      async () => (await inside.client.get(`/v1/pools/${name}`)).body,
      ({ ready, starting }) => ready === count && starting === 0,
    );
  const whenDigest = async (name: string, digest: string) =>
    until(
      async () => (await inside.client.get(`/v1/pools/${name}`)).body,
      ({ ready, image_digest }) => ready === 2 && image_digest === digest,
    );
  const exec = async (id: string, script: string) =>
    (await inside.client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'sh', args: ['-c', script] })).body;

  test('gives a running container away, whose commands have the variables of the create, also after a restart', async () => {
    const image = { type: 'oci', reference: IMAGE };
    await put('own', { image, pull_policy: 'never', size: 2 });
    const { sandboxes } = await whenReady('own', 2);
    const env = [{ key: 'GREETING', value: 'hello there' }];
    const begun = performance.now();
    const body = await create({ name: 'mine', image, pull_policy: 'never', env, labels: { team: 'a' } });
    const first = await exec(body.id, 'echo "$GREETING"');
    console.log(`pool: create to the first output of a command: ${Math.round(performance.now() - begun)} ms`);
    expect([body.source.start, first.stdout]).toEqual(['warm', 'hello there\n']);
    expect(sandboxes.map(({ id }: { id: string }) => id)).toContain(body.id);
    const before = await containerOf(body.id);
    const own = await inside.client.post(`/v1/sandboxes/${body.id}/exec`, {
      cmd: 'sh',
      args: ['-c', 'echo "$GREETING"'],
      env: { GREETING: 'of the command' },
    });
    expect(own.body.stdout).toBe('of the command\n');
    await inside.client.post(`/v1/sandboxes/${body.id}/stop`, undefined, { wait_for: 'stopped' });
    await inside.client.post(`/v1/sandboxes/${body.id}/start`, undefined, { wait_for: 'running' });
    expect((await exec(body.id, 'echo "$GREETING"')).stdout).toBe('hello there\n');
    expect((await containerOf(body.id))!.id).toBe(before!.id);
    // A sandbox of its own runs no code of a caller before a create takes it.
    const { sandboxes: next } = await whenReady('own', 2);
    expect(next.map(({ id }: { id: string }) => id)).not.toContain(body.id);
  });

  const commandOf = async (id: string, isOver: (status: string) => boolean) =>
    until(
      async () => (await inside.client.get(`/v1/sandboxes/${id}`)).body,
      ({ command }) => isOver(command.status),
    );
  const logOf = async (id: string) =>
    String(await docker.getContainer((await containerOf(id))!.id).logs({ stdout: true, stderr: true }));
  /** The engine reports an end before the last output is written. */
  const whenLogged = (id: string, text: string) =>
    until(
      () => logOf(id),
      (log) => log.includes(text),
    );
  const again = async (id: string, action: 'start' | 'stop') =>
    inside.client.post(`/v1/sandboxes/${id}/${action}`, undefined, {
      wait_for: action === 'start' ? 'running' : 'stopped',
    });

  test('hands the command, the scripts and the working directory over, at each start', async () => {
    const image = { type: 'oci', reference: IMAGE };
    await put('own', { image, pull_policy: 'never', size: 2 });
    await whenReady('own', 2);
    const body = await create({
      name: 'commanded',
      image,
      pull_policy: 'never',
      env: [{ key: 'GREETING', value: 'hello' }],
      runtime: {
        cmd: [
          '-c',
          'echo ran >> /starts; echo "$GREETING from $PWD"; greet; until [ -e /end ]; do sleep 0.1; done; rm /end; kill -9 $$',
        ],
        entrypoint: ['sh'],
        workdir: '/made/for/it',
        scripts: { greet: 'echo "a script says $GREETING"' },
      },
    });
    expect([body.source.start, body.command.status]).toEqual(['warm', 'running']);
    // A command of the caller waits for the scripts.
    expect((await exec(body.id, 'pwd; greet; touch /end')).stdout).toBe(
      '/made/for/it\na script says hello\n',
    );
    const { command } = await commandOf(body.id, (status) => status !== 'running');
    expect(command).toMatchObject({ status: 'killed', signal: 9, exit_code: 137 });
    for (const line of ['hello from /made/for/it', 'a script says hello', 'killed by signal 9'])
      await whenLogged(body.id, line);
    const { text: events } = await inside.client.get('/v1/events', {
      resource_id: body.id,
      event_type: 'sandbox_command_ended',
    });
    expect(JSON.parse(events).data).toHaveLength(1);
    await again(body.id, 'stop');
    const started = await again(body.id, 'start');
    expect(started.body.command.status).toBe('running');
    await exec(body.id, 'touch /end');
    await commandOf(body.id, (status) => status !== 'running');
    expect((await exec(body.id, 'cat /starts; pwd')).stdout).toBe('ran\nran\n/made/for/it\n');
  });

  test('ends a sandbox with its command', async () => {
    const image = { type: 'oci', reference: IMAGE };
    await whenReady('own', 2);
    const body = await create({
      name: 'ending',
      image,
      pull_policy: 'never',
      lifecycle: { ends_with_command: true },
      runtime: { cmd: ['sh', '-c', 'echo last words; exit 7'] },
    });
    expect(body.source.start).toBe('warm');
    const { status, stop_reason, command } = await until(
      async () => (await inside.client.get(`/v1/sandboxes/${body.id}`)).body,
      (found) => !['running', 'stopping'].includes(found.status),
    );
    expect([status, stop_reason, command.exit_code]).toEqual(['failed', 'command', 7]);
    await whenLogged(body.id, 'last words');
  });

  test('starts a command once when it is handed over again', async () => {
    const image = { type: 'oci', reference: IMAGE };
    await whenReady('own', 2);
    const cmd = ['sh', '-c', 'echo ran >> /starts; exec sleep 600'];
    const body = await create({ name: 'once', image, pull_policy: 'never', runtime: { cmd } });
    expect(body.source.start).toBe('warm');
    const { pool } = inside.service.ctx;
    const handedOver = async () => {
      const { rows } = await pool.query<{ done: boolean }>(
        'select handed_over as done from runs where sandbox_id = $1',
        [body.id],
      );
      return rows[0]!.done;
    };
    await until(handedOver, (done) => done);
    // As after a kill of the service between the answer of process 1 and the note in the store.
    for (let round = 0; round < 3; round += 1) {
      await pool.query('update runs set handed_over = false where sandbox_id = $1', [body.id]);
      await announceChange(pool, body.id);
      await until(handedOver, (done) => done);
    }
    const starts = await until(
      async () => (await exec(body.id, 'cat /starts')).stdout as string,
      (text) => text !== '',
    );
    expect(starts).toBe('ran\n');
  });

  test('has members of one image, the one to which its tag leads', async () => {
    const [older, newer] = [imageOf(await newLayer()), imageOf(await newLayer())];
    const registry = await serve(older);
    const image = { type: 'oci', reference: `${registry.host}/team/pooled:1` };
    await put('tagged', { image, pull_policy: 'always', size: 2 });
    await whenDigest('tagged', older.digest);
    registry.image = newer;
    await inside.service.ctx.pool.query(
      "update pools set tag_checked_at = '2020-01-01' where name = 'tagged'",
    );
    const moved = await whenDigest('tagged', newer.digest);
    const digests = moved.sandboxes.map(({ image_digest }: { image_digest: string }) => image_digest);
    expect(digests).toEqual([newer.digest, newer.digest]);
    const { body } = await inside.client.get('/v1/events', { event_type: 'pool_image_moved' });
    expect(body.data[0].payload).toMatchObject({ previous_digest: older.digest, digest: newer.digest });
    const taken = await create({ name: 'newest', image, pull_policy: 'always' });
    expect([taken.source.start, taken.image_digest]).toEqual(['warm', newer.digest]);
  });
});
