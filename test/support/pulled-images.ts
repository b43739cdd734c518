import type Docker from 'dockerode';
import { randomUUID } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { onTestFinished } from 'vitest';
import { UNCHECKED_DISKS } from '../../src/disk/disk-reserve.js';
import type { PullOptions } from '../../src/engine/definition.js';
import { Images } from '../../src/engines/docker/images/images.js';
import type { ImageAccess } from '../../src/registry/image-access.js';
import type { Run, WantedImage } from '../../src/engine/runtime.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { registryReach } from '../../src/settings.js';
import { docker } from './docker.js';
import { configOf, layerOf, remoteImage, serveRegistry } from './private-registry.js';

/** Registries of the tests are on a loopback address. */
export const LOCAL = { registryAllow: [], registryHttp: ['127.0.0.1'] };
export const credentials = { username: 'puller', password: 'canary-of-the-registry' };
export const architecture = process.arch === 'arm64' ? 'arm64' : 'amd64';

/** For `intercept`. */
export const answered = (...done: unknown[]) => done.length > 0;

/** The registry and the images that were pulled from it go with the test. */
export async function serve(...options: Parameters<typeof serveRegistry>) {
  const registry = await serveRegistry(...options);
  onTestFinished(() => registry.close());
  return registry;
}

/** The records of a store, with an age that tests set. */
export function recordedAccess() {
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

const RUN = { runId: 'run' };

export function makeImages(options: Partial<PullOptions> = {}, engine: Docker = docker) {
  const access = recordedAccess();
  const images = new Images(engine, architecture, {
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
    return images.ensure(
      { ...RUN, orgId, spec, secrets: { registry, values: {} } } as unknown as Run,
      signal,
    );
  };
  return {
    ensure,
    atHand: async (image: string, { orgId = 'a', pullPolicy = 'if_missing' }: Partial<WantedImage> = {}) =>
      images.atHand({ orgId, image, pullPolicy }),
    access,
    makeRoom: async () => images.makeRoom(),
    release: () => images.release(RUN),
  };
}

/** The message that a caller sees, without the reference. */
export async function refusal(pull: Promise<unknown>): Promise<string> {
  return pull.then(
    () => 'it was pulled',
    (error: Error) => error.message.replace(/^the image \S+ (?:cannot be pulled: )?/, ''),
  );
}

/** A layer that no other test has. */
export const newLayer = async (...more: Parameters<typeof layerOf>[1][]) =>
  layerOf({ [`file-${randomUUID()}`]: 'x' }, ...more);

export const imageOf = (...layers: Buffer[]) =>
  remoteImage(
    configOf(layers),
    layers.map((layer) => gzipSync(layer)),
  );
