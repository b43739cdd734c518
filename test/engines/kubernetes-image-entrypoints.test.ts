import { describe, expect, test } from 'vitest';
import { CONFIG_TIMEOUT_MS, MAX_DOCUMENT_BYTES, PULLS } from '../../src/registry/limits.js';
import { PullQueue } from '../../src/registry/pull-queue.js';
import { ImageEntrypoints } from '../../src/engines/kubernetes/image-entrypoints.js';
import type { Run } from '../../src/engine/runtime.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { registryReach } from '../../src/settings.js';
import { configOf, digestOf, remoteImage, type RemoteImage } from '../support/private-registry.js';
import { answered, architecture, credentials, LOCAL, newLayer, serve } from '../support/pulled-images.js';

const REMEDY = '; give runtime.entrypoint, or [] for none';
const ENTRYPOINT = ['/bin/entry', '--', 'two words'];

/** An image whose layers cannot be pulled. */
async function imageWith(config: Record<string, unknown>): Promise<RemoteImage> {
  const layer = await newLayer();
  const image = remoteImage(configOf([layer], config), [layer]);
  image.blobs.delete(digestOf(layer));
  return image;
}

const imageOf = async (Entrypoint: unknown) => imageWith({ config: { Entrypoint } });

function makeReader(nodeImages: string[] = [], reach = registryReach(LOCAL)) {
  const entrypoints = new ImageEntrypoints(reach, nodeImages, architecture);
  const complete = async (
    image: string,
    {
      orgId = 'a',
      registry = null as typeof credentials | null,
      signal = new AbortController().signal,
      ...more
    }: Partial<RunSpec> & { orgId?: string; registry?: typeof credentials | null; signal?: AbortSignal } = {},
  ) => {
    const spec = { image, pullPolicy: 'if_missing', cmd: ['serve'], entrypoint: null, ...more } as RunSpec;
    return entrypoints.complete({ orgId, spec, secrets: { registry, values: {} } } as unknown as Run, signal);
  };
  /** The message that a caller sees. */
  const refusal = async (...options: Parameters<typeof complete>) =>
    complete(...options).then(
      () => 'it was read',
      (error: Error) => error.message.replace(/^the entrypoint of the image \S+ cannot be read: /, ''),
    );
  return { complete, refusal };
}

describe('the entrypoint of an image, for a command in a Pod', () => {
  test('comes from its registry, with the digest that has it', async () => {
    const image = await imageOf(ENTRYPOINT);
    const registry = await serve(image);
    const { complete } = makeReader();
    const pinned = { image: `${registry.host}/team/app@${image.digest}`, entrypoint: ENTRYPOINT };
    expect(await complete(`${registry.host}/team/app:1`)).toMatchObject(pinned);
    expect(await complete(pinned.image)).toMatchObject(pinned);
    expect(registry.requests.filter((request) => request.startsWith('GET /v2/team/app/blobs/'))).toHaveLength(
      1,
    );
  });

  test('is that of the platform of the nodes', async () => {
    const [own, other] = [await imageOf(ENTRYPOINT), await imageOf(['/other'])];
    const platform = (processor: string) => ({ os: 'linux', architecture: processor });
    const manifests = [
      { digest: other.digest, platform: platform('riscv64') },
      { digest: own.digest, platform: platform(architecture) },
    ];
    const index = Buffer.from(JSON.stringify({ schemaVersion: 2, manifests }));
    const blobs = new Map([...own.blobs, [own.digest, own.manifest]]);
    const registry = await serve({ ...own, manifest: index, digest: digestOf(index), blobs });
    const { complete } = makeReader();
    expect(await complete(`${registry.host}/team/app:1`)).toMatchObject({
      image: `${registry.host}/team/app@${digestOf(index)}`,
      entrypoint: ENTRYPOINT,
    });
    const foreign = await serve(await imageWith({ architecture: 'riscv64' }));
    expect(await makeReader().refusal(`${foreign.host}/team/app:1`)).toBe(
      `it does not exist for the platform of the nodes${REMEDY}`,
    );
  });

  test('is empty for an image without one', async () => {
    for (const config of [{ config: {} }, { config: null }, { config: { Entrypoint: null } }, {}]) {
      const registry = await serve(await imageWith(config));
      expect((await makeReader().complete(`${registry.host}/app:1`)).entrypoint).toEqual([]);
    }
  });

  test('is asked for only when it is needed', async () => {
    const registry = await serve(await imageOf(ENTRYPOINT));
    const image = `${registry.host}/app:1`;
    const { complete, refusal } = makeReader([image]);
    for (const more of [{ entrypoint: ['/mine'] }, { entrypoint: [] }, { cmd: [] }, { cmd: null }]) {
      expect(await complete(image, more)).toMatchObject({ image, entrypoint: null, ...more });
    }
    expect(await refusal(image)).toBe(
      `the entrypoint of the image ${image} is known to its nodes only: give runtime.entrypoint, or [] for none`,
    );
    expect(registry.requests).toEqual([]);
  });

  test('is shown to another organization only after a proof with its own credentials', async () => {
    const registry = await serve(await imageOf(ENTRYPOINT), { credentials, scheme: 'bearer' });
    const { complete, refusal } = makeReader();
    const image = `${registry.host}/team/app:1`;
    await complete(image, { registry: credentials });
    const denied = `the registry has no such repository, or requires credentials${REMEDY}`;
    expect(await refusal(image, { orgId: 'b' })).toBe(denied);
    expect(await refusal(image, { orgId: 'b', registry: { ...credentials, password: 'no' } })).toBe(denied);
    registry.requests.length = 0;
    expect((await complete(image, { orgId: 'b', registry: credentials })).entrypoint).toEqual(ENTRYPOINT);
    // The proof needs no content.
    expect(registry.requests.filter((request) => !/ \/token|^HEAD /.test(request))).toEqual([]);
    expect(await refusal(image)).toBe(denied);
  });

  test('needs one proof for starts of one organization that wait together, and one more for each start after them', async () => {
    const registry = await serve(await imageOf(ENTRYPOINT), { credentials });
    const { complete, refusal } = makeReader();
    const image = `${registry.host}/team/app:1`;
    const starts = Array.from({ length: 8 * PULLS.each }, () => complete(image, { registry: credentials }));
    const denied = refusal(image, { orgId: 'b' });
    for (const { entrypoint } of await Promise.all(starts)) expect(entrypoint).toEqual(ENTRYPOINT);
    expect(await denied).toContain('requires credentials');
    const heads = () => registry.requests.filter((request) => request.startsWith('HEAD ')).length;
    // Each is answered 401 at first.
    expect(heads()).toBeLessThanOrEqual(2 * (2 * PULLS.each + 1));
    const before = heads();
    await complete(image, { registry: credentials });
    expect(heads()).toBe(before + 2);
  });

  test('follows a tag to its next version', async () => {
    const registry = await serve(await imageOf(['/older']));
    const { complete } = makeReader();
    expect((await complete(`${registry.host}/app:1`)).entrypoint).toEqual(['/older']);
    registry.image = await imageOf(['/newer']);
    expect(await complete(`${registry.host}/app:1`)).toMatchObject({
      image: `${registry.host}/app@${registry.image.digest}`,
      entrypoint: ['/newer'],
    });
  });

  test('is refused in words of the service where it is not valid', async () => {
    const invalid = `its configuration has no valid entrypoint${REMEDY}`;
    const cases: [unknown, string][] = [
      ['/bin/sh -c', invalid],
      [{ 0: '/bin/sh' }, invalid],
      [['/bin/sh', 7], invalid],
      [['/bin/\0sh'], invalid],
      [['x'.repeat(20_000)], invalid],
      [Array.from({ length: 10_000 }, () => ''), invalid],
    ];
    for (const [entrypoint, words] of cases) {
      const registry = await serve(await imageOf(entrypoint));
      expect(await makeReader().refusal(`${registry.host}/app:1`)).toBe(words);
    }
  });

  test('is refused where the content is not that of the manifest, or has no end', async () => {
    const image = await imageOf(ENTRYPOINT);
    const registry = await serve(image);
    const name = `${registry.host}/app:1`;
    const blob = (content: Buffer | string) => {
      registry.intercept = ({ url }, response) =>
        url!.includes('/blobs/') && answered(response.writeHead(200).end(content));
    };
    const mismatch = `the content does not have the digest that its manifest names${REMEDY}`;
    const config = image.blobs.get(image.config)!;
    blob(config.toString().replace('/bin/entry', '/bin/other'));
    expect(await makeReader().refusal(name)).toBe(mismatch);
    blob(Buffer.concat([config, Buffer.alloc(100)]));
    expect(await makeReader().refusal(name)).toBe(mismatch);
    blob('');
    expect(await makeReader().refusal(name)).toBe(mismatch);
    let sent = 0;
    registry.intercept = ({ url, method }, response) => {
      if (method !== 'GET' || !url!.includes('/manifests/')) return false;
      const more = () =>
        void (response.destroyed || ((sent += 65_536), response.write(Buffer.alloc(65_536, 32), more)));
      more();
      return true;
    };
    const broken = `the registry gives no valid answer${REMEDY}`;
    expect(await makeReader().refusal(name)).toBe(broken);
    expect(sent).toBeLessThan(16 * MAX_DOCUMENT_BYTES);
    registry.intercept = () => false;
    const large = await imageWith({ config: { Labels: { large: 'x'.repeat(MAX_DOCUMENT_BYTES) } } });
    registry.image = large;
    expect(await makeReader().refusal(name)).toBe(broken);
    for (const text of ['{', '[]', '{"schemaVersion":2}', 'null']) {
      registry.image = { ...large, manifest: Buffer.from(text), digest: digestOf(Buffer.from(text)) };
      expect(await makeReader().refusal(name)).toContain('its format is not supported');
    }
  });

  test('is refused where redirects have no end, or lead to an address that is not public', async () => {
    const registry = await serve(await imageOf(ENTRYPOINT));
    const name = `${registry.host}/app:1`;
    const redirect = (location: string) => {
      registry.intercept = ({ url }, response) =>
        url!.includes('/blobs/') && answered(response.writeHead(307, { location }).end());
    };
    redirect(`http://${registry.host}/v2/app/blobs/again`);
    expect(await makeReader().refusal(name)).toBe(`the registry gives no valid answer${REMEDY}`);
    expect(registry.requests.length).toBeLessThan(12);
    redirect('http://169.254.169.254/latest/');
    expect(await makeReader().refusal(name)).toContain('is not public');
    expect(
      await makeReader([], registryReach({ registryAllow: [], registryHttp: [] })).refusal(name),
    ).toContain('is not public');
    await registry.close();
    expect(await makeReader().refusal(name)).toBe(
      `the registry cannot be reached from this machine${REMEDY}`,
    );
  });

  test('delays no other organization while the registry of one is silent', async () => {
    const silent = await serve(await imageOf(ENTRYPOINT));
    silent.intercept = () => true;
    const registry = await serve(await imageOf(ENTRYPOINT));
    const { complete, refusal } = makeReader();
    const starts = Array.from({ length: 3 * PULLS.each }, () => new AbortController());
    const stuck = starts.map(({ signal }) => refusal(`${silent.host}/app:1`, { signal }));
    await expect.poll(() => silent.requests.length).toBe(PULLS.each);
    const began = performance.now();
    expect((await complete(`${registry.host}/app:1`, { orgId: 'b' })).entrypoint).toEqual(ENTRYPOINT);
    // A place of its own waits for none of those, which last for minutes.
    expect(performance.now() - began).toBeLessThan(30_000);
    expect(silent.requests).toHaveLength(PULLS.each);
    for (const start of starts) start.abort(new Error('given up'));
    expect(new Set(await Promise.all(stuck))).toEqual(new Set(['given up']));
  });

  test('is read in a minute, or not at all', async () => {
    expect(CONFIG_TIMEOUT_MS).toBe(60_000);
    const queue = new PullQueue(50);
    const never = queue.withSlot('a', new AbortController().signal, async ({ signal, ended }) => {
      await ended;
      signal.throwIfAborted();
    });
    await expect(never).rejects.toMatchObject({ failure: 'too_slow' });
  });
});
