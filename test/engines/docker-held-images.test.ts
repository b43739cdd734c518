import type Docker from 'dockerode';
import { randomBytes, randomUUID } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { afterAll, expect, test } from 'vitest';
import { UNCHECKED_DISKS } from '../../src/disk/disk-reserve.js';
import { ORG_LABEL } from '../../src/engines/docker/container.js';
import { findPulledImage, listPulled } from '../../src/engines/docker/images/engine-image.js';
import { Images } from '../../src/engines/docker/images/images.js';
import { makeSnapshotImage, removeSnapshotImage } from '../../src/engines/docker/snapshots/snapshot-image.js';
import { UnusedImages } from '../../src/engine/images/unused-images.js';
import { imageShelf } from '../../src/engines/docker/images/image-shelf.js';
import type { Run } from '../../src/engine/runtime.js';
import { registryReach } from '../../src/settings.js';
import { describeDocker, docker } from '../support/docker.js';
import {
  configOf,
  layerOf,
  remoteImage,
  serveRegistry,
  type PrivateRegistry,
} from '../support/private-registry.js';

const MIB = 1_024 * 1_024;

describeDocker('images that organizations hold', () => {
  const registries: PrivateRegistry[] = [];
  afterAll(async () => {
    for (const registry of registries) await registry.close();
  });
  /** The reference of a new image of this size. */
  const serve = async (mib: number) => {
    const layer = await layerOf({ content: randomBytes((mib * MIB) / 2).toString('hex') });
    const registry = await serveRegistry(remoteImage(configOf([layer]), [gzipSync(layer)]));
    registries.push(registry);
    return `${registry.host}/team/app:1`;
  };
  const orgOf = (name: string) => `${name}-${process.pid}`;
  const runOf = (name: string, image: string, runId = image) =>
    ({
      orgId: orgOf(name),
      runId,
      spec: { image, pullPolicy: 'if_missing' },
      secrets: { registry: null, values: {} },
    }) as unknown as Run;

  /** Organizations may hold 20 MiB each. */
  function makeBounded() {
    const proofs = new Map<string, string>();
    const images = new Images(docker, process.arch === 'arm64' ? 'arm64' : 'amd64', {
      reach: registryReach({ registryAllow: [], registryHttp: ['127.0.0.1'] }),
      access: {
        find: (orgId, reference) => {
          const digest = proofs.get(`${orgId} ${reference}`);
          return Promise.resolve(digest === undefined ? undefined : { digest, ageMs: 0 });
        },
        record: (orgId, reference, digest) =>
          Promise.resolve(void proofs.set(`${orgId} ${reference}`, digest)),
      },
      maxMib: 64,
      maxMibOfOrg: 20,
      disk: UNCHECKED_DISKS,
    });
    const start = async (name: string, reference: string) => {
      const run = runOf(name, reference, `${name} ${reference}`);
      try {
        const { id } = await images.ensure(run, new AbortController().signal);
        return await docker.createContainer({ Image: id, Cmd: ['x'], Labels: { [ORG_LABEL]: run.orgId } });
      } finally {
        images.release(run);
      }
    };
    return { proofs, start };
  }

  test('are bounded in bytes, whoever pulled them, until their containers are removed', async () => {
    const { proofs, start } = makeBounded();
    const [first, second, third, large] = [await serve(8), await serve(8), await serve(8), await serve(24)];
    const refused = /would hold more bytes of images than --org-images-max-mib allows: delete sandboxes/;
    await expect(start('a', large)).rejects.toThrow(refused);
    const containers = [await start('a', first), await start('a', second), await start('a', second)];
    await expect(start('a', third)).rejects.toThrow(refused);
    containers.push(await start('b', third));
    // It is there, and has a proof.
    proofs.set(`${orgOf('a')} ${third}`, proofs.get(`${orgOf('b')} ${third}`)!);
    await expect(start('a', third)).rejects.toThrow(refused);
    await containers.shift()!.remove();
    containers.push(await start('a', third));
    for (const container of containers) await container.remove();
    const both = await Promise.allSettled([first, second, third].map(async (each) => start('c', each)));
    expect(both.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'fulfilled', 'rejected']);
    for (const each of both) if (each.status === 'fulfilled') await each.value.remove();
  });

  test('count below the snapshots of an organization, also without their names, once for all of them', async () => {
    const { start } = makeBounded();
    const instanceId = randomUUID();
    const snapshot = async (container: Docker.Container, name: string): Promise<Docker.Container> => {
      const { Id } = (await container.commit({})) as { Id: string };
      const below = await docker.getImage((await container.inspect()).Image).inspect();
      const committed = await docker.getImage(Id).inspect();
      const ids = { instanceId, orgId: orgOf('d'), snapshotId: `${name}-${process.pid}` };
      await makeSnapshotImage(docker, ids, { committed, below, digest: below.Id });
      await docker.getImage(Id).remove();
      await container.remove();
      const Image = `sandkeep/snapshot:${ids.snapshotId}`;
      return docker.createContainer({ Image, Cmd: ['x'], Labels: { [ORG_LABEL]: ids.orgId } });
    };
    const [large, small] = [await serve(16), await serve(6)];
    const first = await snapshot(await start('d', large), 'first');
    const second = await snapshot(first, 'second');
    await second.remove();
    for (const name of await registries.at(-2)!.pulled()) await docker.getImage(name).remove();
    const refused = /snapshots of the organization would hold more bytes of images/;
    await expect(start('d', small)).rejects.toThrow(refused);
    expect(await removeSnapshotImage(docker, `first-${process.pid}`)).toBe(true);
    await expect(start('d', small)).rejects.toThrow(refused);
    expect(await removeSnapshotImage(docker, `second-${process.pid}`)).toBe(true);
    await (await start('d', small)).remove();
  });

  test('without a container are removed by least recent use, of the organization with the most bytes', async () => {
    const images = new Images(docker, process.arch === 'arm64' ? 'arm64' : 'amd64', {
      reach: registryReach({ registryAllow: [], registryHttp: ['127.0.0.1'] }),
      access: { find: () => Promise.resolve(undefined), record: () => Promise.resolve() },
      maxMib: 64,
      disk: UNCHECKED_DISKS,
    });
    const unused = new UnusedImages(imageShelf(docker));
    const known = new Set((await listPulled(docker)).flatMap(({ names }) => names));
    const pulled: string[] = [];
    for (const name of ['b', 'a', 'a', 'a']) {
      const run = runOf(name, await serve(1));
      await images.ensure(run, new AbortController().signal);
      images.release(run);
      const [added] = await registries.at(-1)!.pulled();
      unused.noteUse(added!, run.orgId);
      pulled.push(added!);
    }
    const [ofB, older, newest, newer] = pulled;
    unused.noteUse(newest!, orgOf('a'));
    const present = async () => {
      const found = await Promise.all(
        pulled.map(async (name) => findPulledImage(docker, name.split(':')[1]!)),
      );
      return pulled.filter((_, index) => found[index]);
    };
    const remove = async (most: number) => {
      let left = most;
      const before = unused.removed;
      await unused.remove(
        (name) => known.has(name) || !pulled.includes(name),
        () => Promise.resolve((left -= 1) < 0),
      );
      return unused.removed - before;
    };
    expect(await remove(2)).toBe(2);
    expect(await present()).toEqual([ofB, newest]);
    expect([older, newer].every((name) => !known.has(name!))).toBe(true);
    const container = await docker.createContainer({ Image: newest!, Cmd: ['x'] });
    expect(await remove(2)).toBe(1);
    expect(await present()).toEqual([newest]);
    await container.remove();
  });
});
