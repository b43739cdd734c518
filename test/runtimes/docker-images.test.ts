import { createServer } from 'node:http';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { DiskReserve, measure, UNCHECKED_DISKS } from '../../src/disk/disk-reserve.js';
import { Images, type PullOptions } from '../../src/runtimes/docker/images/images.js';
import type { ImageAccess } from '../../src/runtimes/docker/images/image-access.js';
import type { Run, RunSpec } from '../../src/runtimes/runtime.js';
import { registryReach } from '../../src/settings.js';
import { describeDocker, docker, IMAGE, makeImage } from '../support/docker.js';
import {
  configOf,
  digestOf,
  layerOf,
  remoteImage,
  remoteImageOf,
  serveRegistry,
  type PrivateRegistry,
  type RemoteImage,
} from '../support/private-registry.js';

/** For `intercept`. */
const answered = (...done: unknown[]) => done.length > 0;
const LOCAL = { registryAllow: [], registryHttp: ['127.0.0.1'] };
const MIB = 1_024 * 1_024;
const HOUR_MS = 3_600_000;
const credentials = { username: 'puller', password: 'canary-of-the-registry' };
const architecture = process.arch === 'arm64' ? 'arm64' : 'amd64';

/** The records of a store, with an age that tests set. */
function recordedAccess() {
  const rows = new Map<string, string>();
  const access: ImageAccess & { ageMs: number } = {
    ageMs: 0,
    find: (orgId, reference) => {
      const digest = rows.get(`${orgId} ${reference}`);
      return Promise.resolve(digest === undefined ? undefined : { digest, ageMs: access.ageMs });
    },
    record: (orgId, reference, digest) => Promise.resolve(void rows.set(`${orgId} ${reference}`, digest)),
  };
  return access;
}

describeDocker('images of docker sandboxes', () => {
  let base: RemoteImage;
  const registries: PrivateRegistry[] = [];

  beforeAll(async () => {
    makeImage();
    base = await remoteImageOf(IMAGE);
  });
  afterAll(async () => {
    for (const registry of registries) await registry.close();
  });

  const serve = async (...options: Parameters<typeof serveRegistry>) => {
    const registry = await serveRegistry(...options);
    registries.push(registry);
    return registry;
  };
  const makeImages = (options: Partial<PullOptions> = {}) => {
    const access = recordedAccess();
    const images = new Images(docker, architecture, {
      reach: registryReach(LOCAL),
      access,
      maxMib: 64,
      disk: UNCHECKED_DISKS,
      ...options,
    });
    const ensure = async (
      reference: string,
      {
        orgId = 'a',
        pullPolicy = 'if_missing',
        registry = null as typeof credentials | null,
        signal = new AbortController().signal,
      } = {},
    ) => {
      const spec = { image: reference, pullPolicy } as RunSpec;
      return images.ensure({ orgId, spec, secrets: { registry, values: {} } } as unknown as Run, signal);
    };
    return { ensure, access };
  };
  /** The message that a caller sees, without the reference. */
  const refusal = async (pull: Promise<unknown>): Promise<string> =>
    pull.then(
      () => 'it was pulled',
      (error: Error) => error.message.replace(/^the image \S+ (?:cannot be pulled: )?/, ''),
    );
  /** An image of a registry with these layers, which no other test has. */
  let made = 0;
  const newLayer = async (...more: Parameters<typeof layerOf>[1][]) =>
    layerOf({ [`file-${(made += 1)}-${process.pid}`]: 'x' }, ...more);
  const imageOf = (...layers: Buffer[]) =>
    remoteImage(
      configOf(layers),
      layers.map((layer) => gzipSync(layer)),
    );

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

  test('are pulled with a token of the realm, which alone gets the credentials', async () => {
    const registry = await serve(imageOf(await newLayer()), { credentials, scheme: 'bearer' });
    const { ensure } = makeImages();
    await ensure(`${registry.host}/team/app:1`, { registry: credentials });
    const token = registry.requests.find((request) => request.includes('/token'));
    expect(token).toBe('GET /token?service=test&scope=repository%3Ateam%2Fapp%3Apull');
    expect(registry.logins.filter((login) => login.startsWith('Basic '))).toHaveLength(1);
  });

  test('come from redirects, which get no credentials', async () => {
    const image = imageOf(await newLayer());
    const storage = await serve(image);
    const registry = await serve(image, {
      credentials,
      intercept: ({ url, headers }, response) => {
        if (!url!.includes('/blobs/') || headers.authorization === undefined) return false;
        response.writeHead(307, { location: `http://${storage.host}${url}?signed` }).end();
        return true;
      },
    });
    storage.intercept = (request) => void (request.url = request.url!.replace('?signed', ''));
    const { ensure } = makeImages();
    expect((await ensure(`${registry.host}/team/app:1`, { registry: credentials })).id).toBe(image.config);
    expect(storage.requests).toHaveLength(2);
    expect(storage.logins).toEqual([]);
  });

  test('come from redirects whose targets name no realm for the credentials', async () => {
    const image = imageOf(await newLayer());
    const thief = await serve(image);
    const realm = { 'www-authenticate': `Bearer realm="http://${thief.host}/token"` };
    thief.intercept = ({ url }, response) =>
      url!.includes('/blobs/') && answered(response.writeHead(401, realm).end());
    const registry = await serve(image, {
      credentials,
      intercept: ({ url, headers }, response) =>
        url!.includes('/blobs/') &&
        headers.authorization !== undefined &&
        answered(response.writeHead(307, { location: `http://${thief.host}${url}` }).end()),
    });
    const { ensure } = makeImages();
    const told = await refusal(ensure(`${registry.host}/team/app:1`, { registry: credentials }));
    expect(told).toBe('the registry has no such repository, or requires credentials');
    expect(thief.logins).toEqual([]);
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

  test('reach no address that is not public: as a registry, a redirect, a realm or a name', async () => {
    let reached = 0;
    const inside = createServer((_, response) => {
      reached += 1;
      response.end('a secret of the operator');
    });
    await new Promise<void>((resolve) => inside.listen(0, '127.0.0.2', resolve));
    const { port } = inside.address() as { port: number };
    const asked: string[] = [];
    const reach = registryReach(LOCAL, (host) => {
      asked.push(host);
      return Promise.resolve(host === 'two.example' ? ['1.1.1.1', '10.0.0.1'] : ['127.0.0.2']);
    });
    const { ensure } = makeImages({ reach });
    const refused =
      'the registry, or an address that it names, is not public: the operator can allow it with --registry-allow or --registry-http';
    const targets = [
      `127.0.0.2:${port}`,
      '169.254.169.254',
      '10.0.0.1',
      '2130706434:80',
      'registry.example',
      'two.example',
    ];
    for (const target of targets) {
      expect([target, await refusal(ensure(`${target}/team/app:1`))]).toEqual([target, refused]);
    }
    expect(asked).toEqual(['registry.example', 'two.example']);
    const registry = await serve(base);
    const places = [
      `http://127.0.0.2:${port}/x`,
      `https://127.0.0.2:${port}/x`,
      'http://169.254.169.254/latest/',
      'http://[::1]/',
      'file:///etc/passwd',
      'http://registry.example/',
    ];
    for (const place of places) {
      registry.intercept = (_, response) => answered(response.writeHead(302, { location: place }).end());
      expect([place, await refusal(ensure(`${registry.host}/team/app:1`))]).toEqual([place, refused]);
      const realm = { 'www-authenticate': `Bearer realm="${place}",service="x"` };
      registry.intercept = (_, response) => answered(response.writeHead(401, realm).end());
      expect([
        place,
        await refusal(ensure(`${registry.host}/team/app:1`, { registry: credentials })),
      ]).toEqual([place, refused]);
    }
    expect(reached).toBe(0);
    inside.close();
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
      'its format is not supported: it must be an OCI or Docker image with gzip or plain layers';
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

  test('are refused while they arrive when their content would touch the reserve of the disk', async () => {
    const layer = await layerOf({ zeros: '0'.repeat(32 * MIB) });
    const registry = await serve(imageOf(layer));
    const room = (await measure('engine', '/dev/shm', 0))!.freeBytes / MIB;
    const pullWith = async (reserveMib: number) => {
      const disk = new DiskReserve({ pathOf: () => '/dev/shm', reserveMib, hasOwnDatabase: false });
      await disk.refresh();
      return refusal(makeImages({ disk }).ensure(`${registry.host}/team/app:1`));
    };
    const full = 'the disk of this machine is full up to its reserve: ask the operator to make room';
    expect(await pullWith(Math.floor(room) - 16)).toBe(full);
    expect(await registry.pulled()).toEqual([]);
    expect(await pullWith(0)).toBe('it was pulled');
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
    expect((await ensure(`${registry.host}/team/app@${registry.image.digest}`)).id).toBe(image.config);
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
