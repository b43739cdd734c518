import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MOST_LAYERS } from '../../src/engines/docker/snapshots/disk-captures.js';
import { END_OF_ARCHIVE, tarHeader, tarPadding } from '../../src/lib/tar-entry.js';
import { openOwnEngine, type OwnEngine } from '../crash/support/docker-engine.js';
import { Dice } from '../crash/support/seeded-random.js';
import { readSeed } from '../support/budget.js';
import { onDocker } from '../support/docker-service.js';
import { describeDocker, IMAGE, makeImage } from '../support/docker.js';
import { startInside, type Inside } from '../support/inside.js';
import { until } from '../support/polling.js';
import { capture, fromSnapshot, RUNNING } from '../support/snapshots.js';

const ROUNDS = 15;
const AT_ONCE = 3;
const SEED = readSeed('SANDKEEP_TEST_SNAPSHOTS_SEED');

describeDocker('the layers of snapshots', () => {
  let engine: OwnEngine;
  let inside: Inside;
  beforeAll(async () => {
    engine = await openOwnEngine();
    makeImage(engine.socket);
    const capacity = { vcpus: 100, memoryMib: 100_000 };
    inside = await startInside({
      ...onDocker({ socketPath: engine.socket, capacity }),
      settings: { volumePurgeAfterMs: 0 },
    });
  });
  afterAll(async () => {
    await inside.close();
    await engine.close();
  });

  const exec = async (id: string, script: string) => {
    const request = { cmd: 'sh', args: ['-c', script] };
    const { body, text } = await inside.client.post(`/v1/sandboxes/${id}/exec`, request);
    expect(body.exit_code, text).toBe(0);
  };
  const startFrom = async (name: string, snapshotId: string): Promise<string> => {
    const request = fromSnapshot(name, snapshotId, { runtime: { cmd: ['sleep', '600'] } });
    const { body, text } = await inside.client.post('/v1/sandboxes', request, RUNNING);
    expect(body.status, text).toBe('running');
    return body.id;
  };
  const made = async (sandboxId: string, name: string): Promise<string> => {
    const operation = await capture(inside.client, sandboxId, name);
    expect(operation['error']).toBeNull();
    return operation['id'];
  };
  const sandboxes = async () =>
    (await engine.docker.listContainers({ all: true, filters: { label: ['dev.sandkeep.sandbox'] } })).length;
  /** The sums of "docker system df", and the records of layers below it. */
  async function inEngine() {
    const { LayersSize, Images, Containers } = (await engine.docker.df()) as {
      LayersSize: number;
      Images: { RepoTags: string[] | null; Id: string }[];
      Containers: { Id: string }[];
    };
    const { Driver } = (await engine.docker.info()) as { Driver: string };
    const layers = join(dirname(engine.socket), 'data', 'image', Driver, 'layerdb', 'sha256');
    return {
      bytes: LayersSize,
      images: Images.map(({ Id, RepoTags }) => `${Id} ${RepoTags?.join()}`).toSorted(),
      containers: Containers.length,
      layers: readdirSync(layers).toSorted(),
    };
  }

  test(`are gone when nothing needs them: SANDKEEP_TEST_SNAPSHOTS_SEED=${SEED}`, async () => {
    const dice = new Dice(SEED);
    // The volume with process 1 is made at the first start.
    await inside.client.delete(`/v1/sandboxes/${await inside.start('first')}`);
    await until(sandboxes, (count) => count === 0);
    const before = await inEngine();
    const round = async (at: number, deletions: readonly number[]) => {
      const source = await inside.start(`source-${at}`);
      await exec(source, `head -c 300000 /dev/urandom > /srv/${at}`);
      const base = await made(source, `base-${at}`);
      const second = await startFrom(`second-${at}`, base);
      await exec(second, `head -c 100000 /dev/urandom > /srv/more && rm /srv/${at}`);
      const child = await made(second, `child-${at}`);
      const third = await startFrom(`third-${at}`, child);
      const paths = [
        `/v1/sandboxes/${source}`,
        `/v1/snapshots/${base}`,
        `/v1/sandboxes/${second}`,
        `/v1/snapshots/${child}`,
        `/v1/sandboxes/${third}`,
      ];
      for (const index of deletions) {
        const { status, text } = await inside.client.delete(paths[index]!);
        expect(status, text).toBe(200);
      }
    };
    for (let at = 0; at < ROUNDS; at += AT_ONCE) {
      const orders = Array.from({ length: AT_ONCE }, () => shuffled(dice, [0, 1, 2, 3, 4]));
      await Promise.all(orders.map(async (order, index) => round(at + index, order)));
    }
    await until(sandboxes, (count) => count === 0);
    // The engine removes the record of an image before its layers.
    await until(inEngine, (after) => isDeepStrictEqual(after, before));
    await until(
      async () => (await inside.client.get('/v1/quotas')).body.snapshots as number,
      (count) => count === 0,
    );
  });

  test('are at most as many as the engine can have, and the refusal says what to do', async () => {
    const base = (await engine.docker.getImage(IMAGE).inspect()).RootFS.Layers!.length;
    await loadDeepImage(engine, 'deep-image:1', MOST_LAYERS - 1 - base);
    const source = await inside.start('deep', { image: { type: 'oci', reference: 'deep-image:1' } });
    await exec(source, 'echo last > /srv/last');
    const deepest = await startFrom('deepest', await made(source, 'deepest'));
    await exec(deepest, 'cat /srv/last && echo more > /srv/more');
    const { status, error } = await capture(inside.client, deepest, 'too-deep');
    expect([status, error.code]).toEqual(['failed', 'too_many_layers']);
    expect(error.message).toContain('copy the files to a sandbox of an image with fewer layers');
    const { body } = await inside.client.get('/v1/snapshots');
    for (const { id } of body.data) await inside.client.delete(`/v1/snapshots/${id}`);
  });
});

function shuffled<T>(dice: Dice, list: readonly T[]): T[] {
  const left = [...list];
  return list.map(() => left.splice(dice.between(0, left.length - 1), 1)[0]!);
}

/** The test image with further layers of one file. The engine reads only the layers that it lacks. */
async function loadDeepImage({ docker }: OwnEngine, name: string, more: number): Promise<void> {
  const { Architecture, Os, Config, RootFS } = await docker.getImage(IMAGE).inspect();
  const own = RootFS.Layers!;
  const tars = Array.from({ length: more }, (_, at) =>
    Buffer.concat([...entry(`deep-${at}`, Buffer.from(String(at))), END_OF_ARCHIVE]),
  );
  const digests = tars.map((tar) => `sha256:${createHash('sha256').update(tar).digest('hex')}`);
  const config = JSON.stringify({
    architecture: Architecture,
    os: Os,
    config: Config,
    rootfs: { type: 'layers', diff_ids: [...own, ...digests] },
  });
  const Layers = [...own.map((_, at) => `own-${at}.tar`), ...tars.map((_, at) => `${at}.tar`)];
  const manifest = JSON.stringify([{ Config: 'config.json', RepoTags: [name], Layers }]);
  const files = [
    ...tars.flatMap((tar, at) => entry(`${at}.tar`, tar)),
    ...entry('config.json', Buffer.from(config)),
    ...entry('manifest.json', Buffer.from(manifest)),
    END_OF_ARCHIVE,
  ];
  const progress = await docker.loadImage(Readable.from(files), { quiet: true });
  for await (const line of progress) expect(String(line)).not.toContain('error');
}

function entry(name: string, content: Buffer): Buffer[] {
  return [tarHeader(name, content.length), content, tarPadding(content.length)];
}
