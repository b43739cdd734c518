import { createHash } from 'node:crypto';
import { CONFIG_TIMEOUT_MS, MAX_DOCUMENT_BYTES } from '../../registry/limits.js';
import { verified } from '../../registry/layer-check.js';
import { readEntrypoint } from '../../registry/manifest.js';
import { requestDigest, requestPlatformManifest } from '../../registry/manifest-requests.js';
import { PullError } from '../../registry/pull-error.js';
import type { Pull } from '../../registry/pull.js';
import { PullQueue } from '../../registry/pull-queue.js';
import { readAll, RegistrySession, type RegistryReach } from '../../registry/registry-session.js';
import {
  formatImageReference,
  parseImageReference,
  type ImageReference,
} from '../../spec/image-reference.js';
import { StartRefusedError, type Run } from '../../engine/runtime.js';
import type { RunSpec } from '../../spec/run-spec.js';

interface KnownImage {
  entrypoint: string[];
  /**
   * With the digest of the tag, also for an index: the nodes choose their platform, and name all Pods of an image by
   * one digest.
   */
  name: string;
}

const MOST_KNOWN = 500;
const REMEDY = 'give runtime.entrypoint, or [] for none';

/** Reads the entrypoints of images from their registries, because no node tells them. */
export class ImageEntrypoints {
  private readonly queue = new PullQueue(CONFIG_TIMEOUT_MS);
  /** By repository and digest. Each use follows a proof of access to both. */
  private readonly known = new Map<string, KnownImage>();
  /** By organization, reference and credentials. `at`: no answer of the registry is older. */
  private readonly proofs = new Map<string, { image: KnownImage; at: number }>();

  constructor(
    private readonly reach: RegistryReach | undefined,
    private readonly nodeImages: readonly string[],
    private readonly architecture: string,
  ) {}

  /**
   * The specification with the entrypoint of its image, and with the image by the digest that has this entrypoint. Asks
   * the registry only for a `cmd` without an entrypoint. Throws StartRefusedError, or the reason of the signal.
   */
  async complete(run: Run, signal: AbortSignal): Promise<RunSpec> {
    const { spec } = run;
    const { image, cmd, entrypoint, pullPolicy } = spec;
    if (cmd === null || cmd.length === 0 || entrypoint !== null) return spec;
    if (this.nodeImages.includes(image) || !this.reach) {
      throw new StartRefusedError(
        `the entrypoint of the image ${image} is known to its nodes only: ${REMEDY}`,
      );
    }
    // No such Pod is created.
    if (pullPolicy === 'never') return spec;
    const reference = parseImageReference(image);
    if (!reference) throw new StartRefusedError(`${image} is not an OCI image reference`);
    try {
      const found = await this.prove(run, reference, this.reach, signal);
      return { ...spec, image: found.name, entrypoint: found.entrypoint };
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof PullError)) throw error;
      throw new StartRefusedError(
        `the entrypoint of the image ${image} cannot be read: ${wordsOf(error)}; ${REMEDY}`,
        { cause: error },
      );
    }
  }

  /** Starts that waited together for a place need one proof. */
  private async prove(
    { orgId, secrets }: Run,
    reference: ImageReference,
    reach: RegistryReach,
    signal: AbortSignal,
  ): Promise<KnownImage> {
    const since = performance.now();
    const { version } = reference;
    const key = keyOf(orgId, formatImageReference(reference), secrets.registry);
    return this.queue.withSlot(orgId, signal, async (pull) => {
      const proof = this.proofs.get(key);
      if (proof && proof.at >= since) return proof.image;
      const at = performance.now();
      const session = new RegistrySession(reach, reference, secrets.registry ?? undefined, pull.signal);
      const digest = await requestDigest(session, 'digest' in version ? version.digest : version.tag);
      const name = nameOf(reference, digest);
      const image = this.known.get(name) ?? (await this.read(session, reference, digest, pull));
      keep(this.known, name, image);
      keep(this.proofs, key, { image, at });
      return image;
    });
  }

  private async read(
    session: RegistrySession,
    reference: ImageReference,
    digest: string,
    pull: Pull,
  ): Promise<KnownImage> {
    const { architecture } = this;
    const found = await requestPlatformManifest(session, digest, architecture);
    const { config } = found.manifest;
    const { body } = await session.request(`blobs/${config.digest}`);
    const counted = pull.count(body, () => undefined);
    const bytes = await readAll(verified(counted, config, atOnce), MAX_DOCUMENT_BYTES);
    return { entrypoint: readEntrypoint(bytes, architecture), name: nameOf(reference, digest) };
  }
}

async function atOnce<T>(work: () => T): Promise<T> {
  return Promise.resolve(work());
}

/** The least recently used one goes first. */
function keep<T>(all: Map<string, T>, key: string, value: T): void {
  all.delete(key);
  all.set(key, value);
  const [oldest] = all.keys();
  if (all.size > MOST_KNOWN) all.delete(oldest!);
}

function nameOf({ registry, repository }: ImageReference, digest: string): string {
  return formatImageReference({ registry, repository, version: { digest } });
}

function keyOf(...parts: unknown[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex');
}

function wordsOf(error: PullError): string {
  return error.failure === 'platform' ? 'it does not exist for the platform of the nodes' : error.words;
}
