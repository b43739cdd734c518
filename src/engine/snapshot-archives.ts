import type { ImageConfig } from '../registry/image-config.js';
import type { ImageBudget } from '../registry/layer-check.js';
import type { Step } from '../registry/step.js';

export interface SnapshotIds {
  orgId: string;
  snapshotId: string;
}

interface Platform {
  os: string;
  architecture: string;
  variant?: string | undefined;
}

/** A layer begins, or continues. */
export type LayerPart = { begin: string } | { bytes: Buffer };

/** A snapshot as an image, with everything below it. */
export interface SnapshotImage {
  platform: Platform;
  /** As RFC 3339. */
  created: string;
  config: ImageConfig;
  /** The lowest first. `diffId`: the digest of the layer as an uncompressed archive of `size` bytes. */
  layers: readonly { diffId: string; size: number }[];
  /** Each different layer once, in any order. Throws unless their digests are right. */
  read(): AsyncIterable<LayerPart>;
  /** Gives back what the engine keeps for it, where nobody reads it. Default: it keeps nothing. */
  close?(): Promise<void>;
}

/** A snapshot that the engine cannot read. Users see the message. */
export class ExportRefusedError extends Error {}

/** An image from an archive of a caller. Only the layers are its own bytes, and nothing has proven them yet. */
export interface ForeignImage {
  platform: Platform;
  created: string;
  config: ImageConfig;
  /** The digest of its configuration. */
  digest: string;
  /** The lowest first. `digest`: equal layers have equal ones. `size`: as they are stored. */
  layers: readonly {
    digest: string;
    diffId: string;
    size: number;
    open(this: void): Promise<AsyncIterable<Buffer>>;
  }[];
}

/** `bytes`: all that the engine keeps for it. `contentDigest`: of its last layer. */
export interface LoadedSnapshot {
  bytes: number;
  contentDigest: string;
  /** As of a capture. Default: it is an image. */
  diskMib?: number;
}

interface Transfer {
  /** Runs the work on a few bytes. */
  step: Step;
  signal: AbortSignal;
}

/** The disk of the engine above its reserve. */
export interface EngineRoom {
  /** Throws when there is no room for so many bytes. */
  check(bytes: number): void;
  /** As `check`, for bytes that this process writes now. */
  take(bytes: number): void;
  /** The bytes are not on the disk any more. */
  giveBack(bytes: number): void;
}

/** Moves snapshots out of an engine, and into it. */
export interface EngineArchives {
  /** In the words of Go. */
  readonly architecture: string;
  /** Undefined: the engine has no such snapshot of the organization. Throws ExportRefusedError. */
  open(ids: SnapshotIds, options: Transfer & { room: EngineRoom }): Promise<SnapshotImage | undefined>;
  /**
   * Makes a snapshot of an image. Nothing incomplete has its id. Throws PullError, unless each uncompressed layer has
   * its digest and the budget has room for all.
   */
  load(
    ids: SnapshotIds,
    image: ForeignImage,
    options: Transfer & { budget: Pick<ImageBudget, 'take'> },
  ): Promise<LoadedSnapshot>;
}
