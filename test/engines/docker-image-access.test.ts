import { beforeAll, expect, test } from 'vitest';
import { describeDocker, docker, IMAGE, makeImage } from '../support/docker.js';
import { remoteImageOf, type RemoteImage } from '../support/private-registry.js';
import {
  answered,
  credentials,
  imageOf,
  makeImages,
  newLayer,
  refusal,
  serve,
} from '../support/pulled-images.js';

const HOUR_MS = 3_600_000;

describeDocker('images of docker sandboxes', () => {
  let base: RemoteImage;

  beforeAll(async () => {
    makeImage();
    base = await remoteImageOf(IMAGE);
  });

  test('are pulled with the id that the registry names, and need no request again', async () => {
    const registry = await serve(base, { credentials });
    const { ensure } = makeImages();
    const reference = `${registry.host}/team/app:1`;
    const pulled = await ensure(reference, { registry: credentials });
    expect(pulled.id).toBe(base.config);
    const asked = registry.requests.length;
    expect(await ensure(reference)).toEqual(pulled);
    expect((await ensure(reference, { pullPolicy: 'never' })).id).toBe(base.config);
    expect(registry.requests).toHaveLength(asked);
  });

  test('run for another organization only after a proof with its own credentials', async () => {
    const registry = await serve(imageOf(await newLayer()), { credentials });
    const { ensure } = makeImages();
    const reference = `${registry.host}/team/app:1`;
    const { id } = await ensure(reference, { registry: credentials });
    const missing = 'is not on this machine, and pull_policy is never: pull it first, or use if_missing';
    const denied = 'the registry has no such repository, or requires credentials';
    expect(await refusal(ensure(reference, { orgId: 'b', pullPolicy: 'never' }))).toBe(missing);
    expect(await refusal(ensure(reference, { orgId: 'b' }))).toBe(denied);
    const wrong = { ...credentials, password: 'no' };
    expect(await refusal(ensure(reference, { orgId: 'b', registry: wrong }))).toBe(denied);
    for (const by of [id, id.slice(0, 19), id.slice('sha256:'.length), id.slice('sha256:'.length, 19)]) {
      const text = await refusal(ensure(by, { orgId: 'b', pullPolicy: 'never' }));
      expect([missing, `${by} is not an OCI image reference`]).toContain(text);
    }
    for (const name of await registry.pulled())
      expect(await refusal(ensure(name, { orgId: 'b', pullPolicy: 'never' }))).toBe(missing);
    registry.requests.length = 0;
    expect((await ensure(reference, { orgId: 'b', registry: credentials })).id).toBe(id);
    // The proof needs no content.
    expect(registry.requests.filter((request) => request.includes('/blobs/'))).toEqual([]);
    expect((await ensure(reference, { orgId: 'b', pullPolicy: 'never' })).id).toBe(id);
  });

  test('run for every organization when they have a name of the operator on the engine', async () => {
    const { ensure } = makeImages();
    for (const pullPolicy of ['never', 'if_missing']) {
      expect((await ensure(IMAGE, { orgId: 'b', pullPolicy })).id).toBe(base.config);
    }
  });

  test('keep their version for an organization when another gets a newer one under the same tag', async () => {
    const [older, newer] = [imageOf(await newLayer()), imageOf(await newLayer())];
    const registry = await serve(older);
    const { ensure } = makeImages();
    const reference = `${registry.host}/team/app:1`;
    expect((await ensure(reference)).id).toBe(older.config);
    registry.image = newer;
    expect((await ensure(reference, { orgId: 'b' })).id).toBe(newer.config);
    expect((await ensure(reference)).id).toBe(older.config);
    expect((await ensure(reference, { pullPolicy: 'always' })).id).toBe(newer.config);
    expect((await ensure(reference)).id).toBe(newer.config);
  });

  test('need a proof again after a day, which the registry may miss for a week', async () => {
    const registry = await serve(imageOf(await newLayer()), { credentials });
    const { ensure, access } = makeImages();
    const reference = `${registry.host}/team/app:1`;
    const { id } = await ensure(reference, { registry: credentials });
    access.ageMs = 25 * HOUR_MS;
    expect(await refusal(ensure(reference))).toContain('requires credentials');
    registry.requests.length = 0;
    expect((await ensure(reference, { registry: credentials })).id).toBe(id);
    expect(registry.requests.every((request) => request.startsWith('HEAD '))).toBe(true);
    registry.intercept = ({ socket }) => answered(socket.destroy());
    expect((await ensure(reference)).id).toBe(id);
    access.ageMs = 8 * 24 * HOUR_MS;
    expect(await refusal(ensure(reference))).toBe('the registry cannot be reached from this machine');
    expect(await refusal(ensure(reference, { pullPolicy: 'never' }))).toContain('is not on this machine');
  });

  test('are at hand for an organization that would start without a question to their registry', async () => {
    const registry = await serve(imageOf(await newLayer()), { credentials });
    const { ensure, atHand, access } = makeImages();
    const reference = `${registry.host}/team/app:1`;
    expect(await atHand(reference)).toBeUndefined();
    const { digest } = await ensure(reference, { registry: credentials });
    registry.requests.length = 0;
    expect(await atHand(reference)).toMatchObject({ digest, config: { user: '', workdir: '' } });
    expect(await atHand(reference, { orgId: 'b' })).toBeUndefined();
    expect(await atHand(reference, { pullPolicy: 'always' })).toBeUndefined();
    access.ageMs = 25 * HOUR_MS;
    expect(await atHand(reference)).toBeUndefined();
    expect(await atHand(reference, { pullPolicy: 'never' })).toMatchObject({ digest });
    access.ageMs = 8 * 24 * HOUR_MS;
    expect(await atHand(reference, { pullPolicy: 'never' })).toBeUndefined();
    // The operator's own.
    expect(await atHand(IMAGE, { orgId: 'b' })).toMatchObject({ digest: (await ensure(IMAGE)).digest });
    expect(registry.requests).toEqual([]);
  });

  test('that were pulled have no name by which another organization gets them', async () => {
    const { ensure } = makeImages();
    const names = ['sandkeep/pulled', 'localhost/sandkeep/pulled', 'docker.io/sandkeep/pulled'];
    for (const name of names) {
      const repo = name.replace('docker.io/', '');
      await docker.getImage(IMAGE).tag({ repo, tag: 'of-another' });
      const text = await refusal(ensure(`${name}:of-another`, { pullPolicy: 'never' }));
      await docker.getImage(`${repo}:of-another`).remove();
      expect([name, text]).toEqual([
        name,
        'is not on this machine, and pull_policy is never: pull it first, or use if_missing',
      ]);
    }
  });
});
