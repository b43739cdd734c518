import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { describeDocker } from '../support/docker.js';
import {
  configOf,
  digestOf,
  layerOf,
  remoteImage,
  type PrivateRegistry,
} from '../support/private-registry.js';
import {
  answered,
  architecture,
  credentials,
  imageOf,
  makeImages,
  newLayer,
  refusal,
  serve,
} from '../support/pulled-images.js';

describeDocker('images of docker sandboxes', () => {
  test('are pulled once for several runs at the same time', async () => {
    const registry = await serve(imageOf(await newLayer()));
    const { ensure } = makeImages();
    const runs = ['a', 'a', 'b', 'c'].map((orgId) => ensure(`${registry.host}/team/app:1`, { orgId }));
    expect(new Set((await Promise.all(runs)).map(({ id }) => id)).size).toBe(1);
    expect(registry.requests.filter((request) => request.includes('/blobs/'))).toHaveLength(2);
  });

  test('are not given to a registry that only names the digests of others', async () => {
    const secret = await newLayer();
    const theirs = imageOf(secret);
    const honest = await serve(theirs, { credentials });
    const { ensure } = makeImages();
    await ensure(`${honest.host}/team/app:1`, { registry: credentials });

    const thief = await serve({ ...theirs, blobs: new Map() });
    expect(await refusal(ensure(`${thief.host}/team/app:1`, { orgId: 'b' }))).toBe(
      'the registry has no such image',
    );
    // Other bytes under the digests of their layers: the engine has such a layer, and would not look at these.
    const other = gzipSync(await newLayer());
    thief.image = remoteImage(configOf([secret], { author: 'the thief' }), [other]);
    const mismatch = 'the content does not have the digest that its manifest names';
    expect(await refusal(ensure(`${thief.host}/team/app:1`, { orgId: 'b' }))).toBe(mismatch);
    for (const rootfs of ['RootFS', 'rootf\u017f']) {
      const own = await newLayer();
      const more = { [rootfs]: { type: 'layers', diff_ids: [digestOf(secret)] } };
      thief.image = remoteImage(configOf([own], more), [gzipSync(own)]);
      expect(await refusal(ensure(`${thief.host}/team/app:1`, { orgId: 'b' }))).toBe(
        'the registry gives no valid answer',
      );
    }
  });

  test('fail in words of the service when the registry answers badly', async () => {
    const layer = await newLayer();
    const good = imageOf(layer);
    const registry = await serve(good);
    const { ensure } = makeImages({ maxMib: 1 });
    const tried = async (change: Partial<PrivateRegistry>) => {
      Object.assign(registry, { image: good, intercept: () => false, ...change });
      return refusal(ensure(`${registry.host}/team/app:1`, { pullPolicy: 'always' }));
    };
    const answering = (
      status: number,
      body: string | Buffer = 'a secret of the registry',
    ): Pick<PrivateRegistry, 'intercept'> => ({
      intercept: (_, response) => answered(response.writeHead(status).end(body)),
    });
    const withBlobs = (change: (bytes: Buffer) => Buffer): Partial<PrivateRegistry> => ({
      image: { ...good, blobs: new Map([...good.blobs].map(([digest, bytes]) => [digest, change(bytes)])) },
    });
    const withConfig = (more: Record<string, unknown>, ...layers: Buffer[]) => ({
      image: remoteImage(
        configOf(layers, more),
        layers.map((bytes) => gzipSync(bytes)),
      ),
    });
    const broken = 'the registry gives no valid answer';
    const mismatch = 'the content does not have the digest that its manifest names';
    const large = 'it is larger than the operator allows with --image-max-mib';
    const unsupported =
      'its format is not supported: push it again as an OCI or Docker image with gzip or plain layers, not zstd';
    const many = 'it has more layers, files or volumes than this service takes';
    const zeros = Buffer.alloc(64 * 1_024 * 1_024);
    const sparse = await layerOf({}, [
      { name: 'holes', size: 0, pax: { 'GNU.sparse.major': '1', 'GNU.sparse.realsize': '99999999999' } },
    ]);
    const oldSparse = Buffer.from(await newLayer());
    oldSparse.write('S', 156);
    /** The engine merges both. */
    const withTwoLists = (layer: Buffer) => {
      const lists = ['a', 'b'].map((name) =>
        JSON.stringify(Object.fromEntries(Array.from({ length: 40 }, (_, n) => [`/${name}${n}`, {}]))),
      );
      const config = `"config":{"Volumes":${lists[0]},"Volumes":${lists[1]}}`;
      const text = configOf([layer]).toString().replace('"config":{}', config);
      return { image: remoteImage(Buffer.from(text), [gzipSync(layer)]) };
    };
    const compressed = (layer: Buffer, magic: string) =>
      Buffer.concat([Buffer.from(magic, 'latin1'), layer.subarray(magic.length)]);
    const cases: [string, Partial<PrivateRegistry>, string][] = [
      ['404', answering(404), 'the registry has no such image'],
      ['401', answering(401), 'the registry has no such repository, or requires credentials'],
      ['403', answering(403), 'the registry has no such repository, or requires credentials'],
      ['429', answering(429), 'the registry allows no more pulls for now'],
      ['500', answering(500), broken],
      ['no JSON', answering(200, 'x'), unsupported],
      ['a huge manifest', answering(200, zeros), broken],
      ['a deep manifest', answering(200, '['.repeat(1_000_000)), unsupported],
      [
        'a cut connection',
        { intercept: (request) => answered(request.socket.destroy()) },
        'the registry cannot be reached from this machine',
      ],
      [
        'redirects without end',
        { intercept: ({ url }, response) => answered(response.writeHead(302, { location: url! }).end()) },
        broken,
      ],
      ['other content', withBlobs((bytes) => Buffer.from(bytes.map((byte) => byte ^ 1))), mismatch],
      ['less content', withBlobs((bytes) => bytes.subarray(1)), mismatch],
      ['more content', withBlobs((bytes) => Buffer.concat([bytes, bytes])), mismatch],
      ['a bomb', withConfig({}, zeros), large],
      ['a sparse file', withConfig({}, sparse), unsupported],
      ['an old sparse file', withConfig({}, oldSparse), unsupported],
      // The engine would uncompress them to any size. The first 512 bytes can be a header of an archive as well.
      ...['BZh', '\xfd7zXZ\0', '\x28\xb5\x2f\xfd', '\x5a\x2a\x4d\x18', '\x1f\x8b\x08'].flatMap(
        (magic): typeof cases => {
          const hidden = compressed(layer, magic);
          const once = remoteImage(configOf([hidden]), [hidden]);
          const isGzip = magic.startsWith('\x1f');
          return [
            [`hidden compression ${magic}`, withConfig({}, hidden), unsupported],
            [`compression ${magic}`, { image: once }, isGzip ? broken : unsupported],
            [`less than a header of ${magic}`, withConfig({}, hidden.subarray(0, 300)), broken],
          ];
        },
      ),
      ['a layer that is no archive', withConfig({}, Buffer.alloc(1_024, 'x')), broken],
      [
        'bytes after the layer',
        { image: remoteImage(configOf([layer]), [Buffer.concat([gzipSync(layer), Buffer.from('x')])]) },
        broken,
      ],
      ['too many layers', withConfig({}, ...Array.from({ length: 126 }, () => layer)), many],
      [
        'too many volumes',
        withConfig(
          { config: { Volumes: Object.fromEntries(Array.from({ length: 65 }, (_, n) => [`/v${n}`, {}])) } },
          layer,
        ),
        many,
      ],
      ['volumes of two lists', withTwoLists(layer), many],
      [
        'another platform',
        withConfig({ architecture: 's390x' }, layer),
        'it does not exist for the platform of this machine',
      ],
    ];
    for (const [name, change, words] of cases) expect([name, await tried(change)]).toEqual([name, words]);
    expect(await registry.pulled()).toEqual([]);
    expect(await tried({})).toBe('it was pulled');
  });

  test('are pulled for the platform of the engine', async () => {
    const image = imageOf(await newLayer());
    const index = (architecture: string) => {
      const manifests = ['s390x', architecture].map((name) => ({
        digest: name === 's390x' ? `sha256:${'0'.repeat(64)}` : image.digest,
        platform: { os: 'linux', architecture: name },
      }));
      const manifest = Buffer.from(JSON.stringify({ schemaVersion: 2, manifests }));
      return {
        ...image,
        manifest,
        digest: digestOf(manifest),
        blobs: new Map(image.blobs).set(image.digest, image.manifest),
      };
    };
    const registry = await serve(index(architecture));
    registry.intercept = (request) =>
      void (request.url = request.url!.replace(`/manifests/${image.digest}`, `/blobs/${image.digest}`));
    const { ensure } = makeImages();
    const { id } = await ensure(`${registry.host}/team/app@${registry.image.digest}`);
    // The image store of containerd names an image by its list of platforms, the older store by its configuration.
    expect([image.config, registry.image.digest]).toContain(id);
    registry.image = index('riscv64');
    expect(await refusal(ensure(`${registry.host}/team/app:1`, { pullPolicy: 'always' }))).toBe(
      'it does not exist for the platform of this machine',
    );
  });

  test('are no longer pulled when their sandbox is stopped', async () => {
    const registry = await serve(imageOf(await newLayer()));
    const { ensure } = makeImages();
    for (const silent of ['/manifests/', '/blobs/']) {
      const stopped = new AbortController();
      registry.intercept = ({ url }, response) => {
        if (!url!.includes(silent)) return false;
        if (silent === '/blobs/') response.writeHead(200).write('begun');
        setTimeout(() => stopped.abort(new Error('stopped')), 50);
        return true;
      };
      await expect(ensure(`${registry.host}/team/app:1`, { signal: stopped.signal })).rejects.toThrow(
        'stopped',
      );
    }
  });
});
