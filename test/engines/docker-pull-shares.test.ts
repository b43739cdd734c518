import type { ServerResponse } from 'node:http';
import { gzipSync } from 'node:zlib';
import { afterAll, expect, onTestFinished, test, vi } from 'vitest';
import { UNCHECKED_DISKS } from '../../src/disk/disk-reserve.js';
import { Images } from '../../src/engines/docker/images/images.js';
import { PULLS } from '../../src/registry/limits.js';
import { Pull } from '../../src/registry/pull.js';
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
import { until } from '../support/polling.js';

describeDocker('places of pulls', () => {
  const registries: PrivateRegistry[] = [];
  afterAll(async () => {
    for (const registry of registries) await registry.close();
  });
  const serve = async (name: string) => {
    const layer = await layerOf({ [`${name}-${process.pid}`]: name });
    const registry = await serveRegistry(remoteImage(configOf([layer]), [gzipSync(layer)]));
    registries.push(registry);
    return registry;
  };

  test('that four organizations hold with slow registries are shared with a fifth, and nobody fails', async () => {
    // A pull that drips counts as idle after a minute, and a busy machine may take longer for this test.
    const idle = vi.spyOn(Pull.prototype, 'idleMs').mockReturnValue(0);
    onTestFinished(() => idle.mockRestore());
    const [slow, quick] = [await serve('slow'), await serve('quick')];
    const dripping = new Set<() => void>();
    let isSlow = true;
    const dripInto = (response: ServerResponse, url: string) => {
      const blob = slow.image.blobs.get(url.split('/').at(-1)!)!;
      response.writeHead(200, { 'content-length': blob.length });
      let sent = 0;
      const drip = setInterval(
        () => sent < blob.length - 1 && response.write(blob.subarray(sent, (sent += 1))),
        500,
      );
      const finish = () => response.end(blob.subarray(sent));
      dripping.add(finish);
      response.once('close', () => {
        clearInterval(drip);
        dripping.delete(finish);
      });
    };
    slow.intercept = ({ url }, response) => {
      if (!isSlow || !url!.includes('/blobs/')) return false;
      dripInto(response, url!);
      return true;
    };
    const images = new Images(docker, process.arch === 'arm64' ? 'arm64' : 'amd64', {
      reach: registryReach({ registryAllow: [], registryHttp: ['127.0.0.1'] }),
      access: { find: () => Promise.resolve(undefined), record: () => Promise.resolve() },
      maxMib: 64,
      disk: UNCHECKED_DISKS,
    });
    const pull = async (orgId: string, image: string) => {
      const spec = { image, pullPolicy: 'if_missing' };
      const run = { orgId, runId: image, spec, secrets: { registry: null, values: {} } };
      return images.ensure(run as unknown as Run, new AbortController().signal);
    };
    const held = Array.from({ length: PULLS.total }, async (_, n) =>
      pull(`a${n % (PULLS.total / PULLS.each)}`, `${slow.host}/team/app-${n}:1`),
    );
    await until(
      () => Promise.resolve(dripping.size),
      (size) => size === PULLS.total,
    );
    expect((await pull('b', `${quick.host}/team/app:1`)).id).toBe(quick.image.config);
    // One lost its place, and none of the others had ended.
    expect(dripping.size).toBeGreaterThanOrEqual(PULLS.total - 1);
    isSlow = false;
    for (const finish of dripping) finish();
    const ids = (await Promise.all(held)).map(({ id }) => id);
    expect(new Set(ids)).toEqual(new Set([slow.image.config]));
  });
});
