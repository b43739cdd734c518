import type Docker from 'dockerode';
import { createHash } from 'node:crypto';
import { PacedSteps } from '../../../fairness/paced-steps.js';
import {
  formatImageReference,
  parseImageReference,
  type ImageReference,
} from '../../../spec/image-reference.js';
import type { PullOptions } from '../../../engine/definition.js';
import { StartRefusedError, type Run } from '../../../engine/runtime.js';
import { findOperatorImage, findPulledImage, pulledName, type EngineImage } from './engine-image.js';
import { HeldImages } from './held-images.js';
import { checkSize, ImageBudget, verified, type SizeLimit } from '../../../registry/layer-check.js';
import type { Step } from '../../../registry/step.js';
import {
  LATEST_TIMEOUT_MS,
  MAX_DOCUMENT_BYTES,
  MAX_VOLUMES,
  PROOF_FRESH_MS,
  PROOF_VALID_MS,
  PULL_TIMEOUT_MS,
  SHARE_OF_ORG,
} from '../../../registry/limits.js';
import { loadImage } from './load-image.js';
import { checkLayers, readConfig } from '../../../registry/manifest.js';
import { requestDigest, requestPlatformManifest } from '../../../registry/manifest-requests.js';
import { PullError, type PullFailure } from '../../../registry/pull-error.js';
import type { Pull } from '../../../registry/pull.js';
import { PullQueue } from '../../../registry/pull-queue.js';
import { readAll, RegistrySession } from '../../../registry/registry-session.js';
import { UnusedImages } from './unused-images.js';

const MIB = 1_024 * 1_024;

/** The failures that say nothing about the access of an organization. */
const NO_ANSWER = new Set<PullFailure>(['unreachable', 'untrusted', 'rate_limited', 'broken', 'too_slow']);

export class Images {
  private readonly queue = new PullQueue(PULL_TIMEOUT_MS);
  private readonly steps = new PacedSteps();
  private readonly pulling = new Map<string, Promise<unknown>>();
  /** The names of the images that each start needs before its container exists. */
  private readonly neededBy = new Map<string, Set<string>>();
  private readonly unused: UnusedImages;
  private readonly held: HeldImages;
  /** The engine writes these later, when it has the archives of the current pulls. */
  private unpackedBytes = 0;

  constructor(
    private readonly docker: Docker,
    private readonly architecture: string,
    private readonly options: PullOptions | undefined,
  ) {
    this.unused = new UnusedImages(docker);
    this.held = new HeldImages(docker, () => maxBytesOfOrg(options));
  }

  /** The image stays until `release`. Throws StartRefusedError, or the reason of the signal. */
  async ensure(run: Run, signal: AbortSignal): Promise<EngineImage> {
    const { image, pullPolicy } = run.spec;
    const reference = parseImageReference(image);
    if (!reference) throw new StartRefusedError(`${image} is not an OCI image reference`);
    const operators = pullPolicy === 'always' ? undefined : await findOperatorImage(this.docker, reference);
    if (operators) return operators;
    const found = await this.obtain(run, reference, signal);
    await this.held.claim(run, found).catch((error: unknown) => {
      throw error instanceof PullError ? refusalOf(image, error) : error;
    });
    return found;
  }

  /** Asks the registry at each call, for a few seconds. Undefined: no tag, or no answer. */
  async latestDigest({ orgId, spec, secrets }: Run, signal: AbortSignal): Promise<string | undefined> {
    const reference = parseImageReference(spec.image);
    if (!reference || 'digest' in reference.version) return undefined;
    const operators =
      spec.pullPolicy === 'always' ? undefined : await findOperatorImage(this.docker, reference);
    if (operators || !this.options || spec.pullPolicy === 'never') return operators?.digest;
    const { reach } = this.options;
    const timed = AbortSignal.any([signal, AbortSignal.timeout(LATEST_TIMEOUT_MS)]);
    try {
      return await this.queue.withSlot(orgId, timed, async (pull) => {
        const session = new RegistrySession(reach, reference, secrets.registry ?? undefined, pull.signal);
        return requestDigest(session, versionOf(reference));
      });
    } catch {
      return undefined;
    }
  }

  private async obtain(run: Run, reference: ImageReference, signal: AbortSignal): Promise<EngineImage> {
    const { orgId, spec, secrets } = run;
    const { image, pullPolicy } = spec;
    const { options } = this;
    const proof =
      pullPolicy === 'always'
        ? undefined
        : await options?.access.find(orgId, formatImageReference(reference));
    const proved = proof && { ...proof, image: await this.find(run, reference, proof.digest) };
    if (proved?.image && proved.ageMs < (pullPolicy === 'never' ? PROOF_VALID_MS : PROOF_FRESH_MS))
      return proved.image;
    if (!options || pullPolicy === 'never') {
      throw new StartRefusedError(
        `the image ${image} is not on this machine, and pull_policy is never: pull it first, or use if_missing`,
      );
    }
    try {
      return await this.queue.withSlot(orgId, signal, async (pull) => {
        const session = new RegistrySession(
          options.reach,
          reference,
          secrets.registry ?? undefined,
          pull.signal,
        );
        const known = proved?.image && (await this.proveAgain(session, proved));
        const digest = known ? proved.digest : await requestDigest(session, versionOf(reference));
        const found = known ?? (await this.findOrPull(session, run, reference, digest, pull));
        await options.access.record(orgId, formatImageReference(reference), digest);
        return found;
      });
    } catch (error) {
      signal.throwIfAborted();
      const { image: held, ageMs = Infinity } = proved ?? {};
      if (!(error instanceof PullError)) throw error;
      if (held && NO_ANSWER.has(error.failure) && ageMs < PROOF_VALID_MS) return held;
      throw refusalOf(image, error);
    }
  }

  /** Undefined: the registry no longer has this version. */
  private async proveAgain(
    session: RegistrySession,
    { digest, image }: { digest: string; image: EngineImage | undefined },
  ): Promise<EngineImage | undefined> {
    try {
      await requestDigest(session, digest);
      return image;
    } catch (error) {
      if (error instanceof PullError && error.failure === 'not_found') return undefined;
      throw error;
    }
  }

  /** Runs of one image wait for one pull; when it fails, the next of them pulls. */
  private async findOrPull(
    session: RegistrySession,
    run: Run,
    reference: ImageReference,
    digest: string,
    pull: Pull,
  ): Promise<EngineImage> {
    const tag = tagOf(reference, digest);
    for (;;) {
      const found = await this.find(run, reference, digest);
      if (found) return found;
      const other = this.pulling.get(tag);
      if (!other) break;
      pull.pause();
      await Promise.race([other.catch(() => undefined), pull.ended]);
      pull.resume();
      pull.signal.throwIfAborted();
    }
    const own = this.pullInRoom(session, digest, tag, pull);
    this.pulling.set(tag, own);
    try {
      await own;
    } finally {
      this.pulling.delete(tag);
    }
    const pulled = await this.find(run, reference, digest);
    if (!pulled)
      throw new PullError('engine', `the engine has no image ${pulledName(tag)} after it was loaded`);
    if (pulled.volumes.length > MAX_VOLUMES) {
      // The engine merges the lists of a configuration that names a field twice.
      await this.docker.getImage(pulledName(tag)).remove();
      throw new PullError('too_many_parts', `${pulled.volumes.length} volumes`);
    }
    return pulled;
  }

  private async pullInRoom(session: RegistrySession, digest: string, tag: string, pull: Pull): Promise<void> {
    const { maxMib, disk } = this.options!;
    const removedBefore = this.unused.removed;
    try {
      await this.pull(session, digest, tag, pull);
    } catch (error) {
      if (!(error instanceof PullError) || error.failure !== 'no_space') throw error;
      // The engine has an archive and its content at once.
      await this.removeUnused(2 * maxMib * MIB);
      // The disk guard may have removed some during the pull.
      if (this.unused.removed === removedBefore) throw error;
      await disk.refresh();
      await this.pull(session, digest, tag, pull);
    }
  }

  private async pull(session: RegistrySession, digest: string, tag: string, pull: Pull): Promise<void> {
    const { architecture } = this;
    const { manifest } = await requestPlatformManifest(session, digest, architecture);
    checkLayers(manifest);
    const { disk } = this.options!;
    const limit = await this.limitOf(pull.orgId);
    checkSize(
      manifest.layers.reduce((sum, { size }) => sum + size, 0),
      limit,
    );
    const step: Step = async (work) => this.steps.once(pull.orgId, work);
    const openBlob = async (digest: string) =>
      pull.count((await session.request(`blobs/${digest}`)).body, (bytes) =>
        inRoom(() => disk.take('engine', bytes)),
      );
    const config = await readAll(
      verified(await openBlob(manifest.config.digest), manifest.config, step),
      MAX_DOCUMENT_BYTES,
    );
    const diffIds = readConfig(config, manifest, architecture);
    const layers = manifest.layers.map((layer, index) => ({ ...layer, diffId: diffIds[index]! }));
    const content = { name: pulledName(tag), config, layers };
    let unpackedBytes = 0;
    const budget = new ImageBudget(limit, (bytes) => {
      unpackedBytes += bytes;
      this.unpackedBytes += bytes;
      inRoom(() => disk.check('engine', this.unpackedBytes));
    });
    try {
      await loadImage(this.docker, content, {
        budget,
        openBlob,
        step,
        signal: pull.signal,
        onSent: () => pull.pause(),
      });
    } finally {
      this.unpackedBytes -= unpackedBytes;
    }
  }

  /** `makeRoom` may remove the image of a run from now on, unless a container has it. */
  release({ runId }: Run): void {
    this.neededBy.delete(runId);
    this.held.release(runId);
  }

  async makeRoom(): Promise<void> {
    await this.removeUnused(0);
  }

  private async removeUnused(bytes: number): Promise<void> {
    const disk = this.options?.disk;
    if (!disk) return;
    const isNeeded = (name: string) => [...this.neededBy.values()].some((names) => names.has(name));
    await this.unused.remove(isNeeded, async () => disk.hasRoom('engine', bytes));
  }

  private async limitOf(orgId: string): Promise<SizeLimit> {
    const most = this.options!.maxMib * MIB;
    const room = await this.held.roomOf(orgId);
    return room < most ? { bytes: room, beyond: 'too_many_images' } : { bytes: most, beyond: 'too_large' };
  }

  private async find(
    { orgId, runId }: Run,
    reference: ImageReference,
    digest: string,
  ): Promise<EngineImage | undefined> {
    const tag = tagOf(reference, digest);
    this.neededBy.set(runId, (this.neededBy.get(runId) ?? new Set()).add(pulledName(tag)));
    this.unused.noteUse(pulledName(tag), orgId);
    const found = await findPulledImage(this.docker, tag);
    return found && { ...found, digest };
  }
}

function maxBytesOfOrg({ maxMibOfOrg, disk }: Partial<PullOptions> = {}): number {
  if (maxMibOfOrg !== undefined) return maxMibOfOrg * MIB;
  return (disk?.room('engine')?.sizeBytes ?? Infinity) * SHARE_OF_ORG;
}

function inRoom(check: () => void): void {
  try {
    check();
  } catch (cause) {
    throw new PullError('no_space', 'the disk is full up to its reserve', { cause });
  }
}

/**
 * A tag is the proof that this repository had the whole image: another registry could name the digest without the
 * content.
 */
function tagOf({ registry, repository }: ImageReference, digest: string): string {
  return createHash('sha256').update(`${registry}/${repository}@${digest}`).digest('hex');
}

function versionOf({ version }: ImageReference): string {
  return 'digest' in version ? version.digest : version.tag;
}

function refusalOf(image: string, error: PullError): StartRefusedError {
  return new StartRefusedError(`the image ${image} cannot be pulled: ${error.words}`, { cause: error });
}
