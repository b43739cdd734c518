import { createHash } from 'node:crypto';
import { limitTime } from '../../lib/time-limit.js';
import { LATEST_TIMEOUT_MS, PROOF_FRESH_MS, PROOF_VALID_MS, PULL_TIMEOUT_MS } from '../../registry/limits.js';
import { requestDigest } from '../../registry/manifest-requests.js';
import { PullError, type PullFailure } from '../../registry/pull-error.js';
import type { Pull } from '../../registry/pull.js';
import { PullQueue } from '../../registry/pull-queue.js';
import { RegistrySession } from '../../registry/registry-session.js';
import {
  formatImageReference,
  parseImageReference,
  type ImageReference,
} from '../../spec/image-reference.js';
import type { PullOptions } from '../definition.js';
import { StartRefusedError, type Run, type WantedImage } from '../runtime.js';

/** The failures that say nothing about the access of an organization. */
const NO_ANSWER = new Set<PullFailure>(['unreachable', 'untrusted', 'rate_limited', 'broken', 'too_slow']);

export interface PullTarget {
  run: Run;
  /** The digest of the image index or the manifest. */
  digest: string;
  /** The name under which an engine keeps the image. */
  tag: string;
}

/** Images that are looked up stay for these. */
export type ImageUser = Pick<Run, 'orgId' | 'runId'>;

/** The images of an engine. */
export interface ImageKeeper<T extends { digest: string }> {
  /** The operator's own image, which every organization may use. */
  findOperators(reference: ImageReference): Promise<T | undefined>;
  /** It stays for the user from now on. Undefined: no whole image was pulled under the tag. */
  find(target: Pick<PullTarget, 'digest' | 'tag'>, user: ImageUser): Promise<T | undefined>;
  /** `find` has the image afterwards. Throws PullError. */
  pull(session: RegistrySession, target: PullTarget, pull: Pull): Promise<void>;
}

/**
 * Gives images to the runs of organizations that have proved their access, and pulls those that are missing. An image
 * has the digest of its index or manifest.
 */
export class PulledImages<T extends { digest: string }> {
  private readonly queue = new PullQueue(PULL_TIMEOUT_MS);
  private readonly pulling = new Map<string, Promise<unknown>>();

  constructor(
    private readonly keeper: ImageKeeper<T>,
    private readonly options: Pick<PullOptions, 'reach' | 'access'> | undefined,
  ) {}

  /** Throws StartRefusedError, or the reason of the signal. */
  async ensure(run: Run, signal: AbortSignal): Promise<{ image: T; isOperators: boolean }> {
    const { image, pullPolicy } = run.spec;
    const reference = parseImageReference(image);
    if (!reference) throw new StartRefusedError(`${image} is not an OCI image reference`);
    const operators = pullPolicy === 'always' ? undefined : await this.keeper.findOperators(reference);
    if (operators) return { image: operators, isOperators: true };
    return { image: await this.obtain(run, reference, signal), isOperators: false };
  }

  /** The image that `ensure` gives without a question to a registry. Undefined: it asks one, or refuses. */
  async findAtHand(
    user: ImageUser,
    { image, pullPolicy }: Omit<WantedImage, 'orgId'>,
  ): Promise<T | undefined> {
    const reference = parseImageReference(image);
    if (!reference || pullPolicy === 'always') return undefined;
    const operators = await this.keeper.findOperators(reference);
    if (operators) return operators;
    const proved = await this.findProved(user, reference, pullPolicy);
    return proved?.isFresh === true ? proved.image : undefined;
  }

  /** Asks the registry at each call, for a few seconds. Undefined: no tag, or no answer. */
  async latestDigest({ orgId, spec, secrets }: Run, signal: AbortSignal): Promise<string | undefined> {
    const reference = parseImageReference(spec.image);
    if (!reference || 'digest' in reference.version) return undefined;
    const operators = spec.pullPolicy === 'always' ? undefined : await this.keeper.findOperators(reference);
    if (operators || !this.options || spec.pullPolicy === 'never') return operators?.digest;
    const { reach } = this.options;
    const limit = limitTime(LATEST_TIMEOUT_MS, signal);
    try {
      return await this.queue.withSlot(orgId, limit.signal, async (pull) => {
        const session = new RegistrySession(reach, reference, secrets.registry ?? undefined, pull.signal);
        return requestDigest(session, versionOf(reference));
      });
    } catch {
      return undefined;
    } finally {
      limit.release();
    }
  }

  private async obtain(run: Run, reference: ImageReference, signal: AbortSignal): Promise<T> {
    const { orgId, spec, secrets } = run;
    const { image, pullPolicy } = spec;
    const { options } = this;
    const proved = await this.findProved(run, reference, pullPolicy);
    if (proved?.image && proved.isFresh) return proved.image;
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
        const known = proved?.image && (await proveAgain(session, proved.digest)) ? proved.image : undefined;
        const digest = known ? proved!.digest : await requestDigest(session, versionOf(reference));
        const found =
          known ?? (await this.findOrPull(session, { run, digest, tag: tagOf(reference, digest) }, pull));
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

  /** The image to which the organization has proved its access. */
  private async findProved(
    user: ImageUser,
    reference: ImageReference,
    pullPolicy: WantedImage['pullPolicy'],
  ): Promise<{ image: T | undefined; digest: string; ageMs: number; isFresh: boolean } | undefined> {
    if (pullPolicy === 'always') return undefined;
    const proof = await this.options?.access.find(user.orgId, formatImageReference(reference));
    if (!proof) return undefined;
    const { digest, ageMs } = proof;
    const image = await this.keeper.find({ digest, tag: tagOf(reference, digest) }, user);
    return {
      image,
      digest,
      ageMs,
      isFresh: ageMs < (pullPolicy === 'never' ? PROOF_VALID_MS : PROOF_FRESH_MS),
    };
  }

  /** Runs of one image wait for one pull; when it fails, the next of them pulls. */
  private async findOrPull(session: RegistrySession, target: PullTarget, pull: Pull): Promise<T> {
    const { tag } = target;
    for (;;) {
      const found = await this.keeper.find(target, target.run);
      if (found) return found;
      const other = this.pulling.get(tag);
      if (!other) break;
      pull.pause();
      await Promise.race([other.catch(() => undefined), pull.ended]);
      pull.resume();
      pull.signal.throwIfAborted();
    }
    const own = this.keeper.pull(session, target, pull);
    this.pulling.set(tag, own);
    try {
      await own;
    } finally {
      this.pulling.delete(tag);
    }
    const pulled = await this.keeper.find(target, target.run);
    if (!pulled) throw new PullError('engine', `there is no image ${tag} after it was pulled`);
    return pulled;
  }
}

/** False: the registry no longer has this version. */
async function proveAgain(session: RegistrySession, digest: string): Promise<boolean> {
  try {
    await requestDigest(session, digest);
    return true;
  } catch (error) {
    if (error instanceof PullError && error.failure === 'not_found') return false;
    throw error;
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

export function refusalOf(image: string, error: PullError): StartRefusedError {
  return new StartRefusedError(`the image ${image} cannot be pulled: ${error.words}`, { cause: error });
}
