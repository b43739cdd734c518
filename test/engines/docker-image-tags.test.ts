import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { containerOf, describeDocker, makeImage } from '../support/docker.js';
import { until } from '../support/polling.js';
import { imageOf, newLayer, serve } from '../support/pulled-images.js';
import { smallRequest } from '../support/sandbox-requests.js';
import { startTestService, type TestService } from '../support/service.js';

const running = { start: true, wait_for: 'running' };

describeDocker('a sandbox whose tag moved', () => {
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    makeImage();
    service = await startTestService({ ...onDocker(), settings: { stopGraceMs: 100 } });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
  });

  const create = async (name: string, reference: string, pull_policy: string) => {
    const request = smallRequest(name, { image: { type: 'oci', reference }, pull_policy });
    const { body } = await client.post('/v1/sandboxes', request, running);
    expect(body.status).toBe('running');
    return body as { id: string; image_digest: string };
  };
  const restart = async (id: string) => {
    await client.post(`/v1/sandboxes/${id}/stop`, {}, { wait_for: 'stopped' });
    return (await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running' })).body;
  };
  const moves = async (id: string) => {
    const { body } = await client.get('/v1/events', {
      event_type: 'sandbox_image_moved',
      resource_id: id,
    });
    return body.data.map(({ payload: { previous_digest, digest, disk } }: any) => ({
      previous_digest,
      digest,
      disk,
    }));
  };

  test('keeps its disk, and says so in an event of each start; with pull_policy always it gets the new image', async () => {
    const [older, newer] = [imageOf(await newLayer()), imageOf(await newLayer())];
    const registry = await serve(older);
    const reference = `${registry.host}/team/app:1`;
    const kept = await create('kept', reference, 'if_missing');
    const renewed = await create('renewed', reference, 'always');
    expect([kept.image_digest, renewed.image_digest]).toEqual([older.digest, older.digest]);
    // Nothing moved, and the container stays.
    const before = (await containerOf(renewed.id))!.id;
    expect((await restart(renewed.id)).image_digest).toBe(older.digest);
    expect((await containerOf(renewed.id))!.id).toBe(before);

    registry.image = newer;
    const again = await restart(kept.id);
    expect([again.status, again.image_digest]).toEqual(['running', older.digest]);
    const moved = { previous_digest: older.digest, digest: newer.digest };
    expect(
      await until(
        () => moves(kept.id),
        (events) => events.length > 0,
      ),
    ).toEqual([{ ...moved, disk: 'kept' }]);

    const after = await restart(renewed.id);
    expect([after.status, after.image_digest]).toEqual(['running', newer.digest]);
    expect((await (await containerOf(renewed.id))!.inspect()).Image).toBe(newer.config);
    expect(await moves(renewed.id)).toEqual([{ ...moved, disk: 'replaced' }]);

    // Without an answer of the registry, both start from their disks.
    registry.intercept = ({ socket }) => Boolean(socket.destroy());
    for (const { id } of [kept, renewed]) expect((await restart(id)).status).toBe('running');
    expect(await moves(renewed.id)).toHaveLength(1);
  });
});
