import { link, open } from 'node:fs/promises';
import { join } from 'node:path';
import {
  CaptureRefusedError,
  type Capture,
  type Captured,
  type EngineSnapshots,
  type WantedImage,
} from '../../../engine/runtime.js';
import { PacedSteps } from '../../../fairness/paced-steps.js';
import type { ImageConfig } from '../../../registry/image-config.js';
import { copyDisk, sealLayer } from '../disks/copy-disk.js';
import { allocatedBytes, layerFile, layerFiles, linkLayers } from '../disks/layers.js';
import { readHeld, type HeldSandbox } from '../holdings.js';
import { holdProcessors } from '../hold.js';
import { BASE_FILE, sha256Of } from '../images/build-base.js';
import type { MicrovmParts } from '../parts.js';
import type { SnapshotStore } from './snapshot-store.js';

/** A monitor opens each of them, and has tables of each in its memory. */
const MOST_LAYERS = 64;

const CHANGED =
  'the sandbox was started, stopped or deleted during the capture: repeat the request when it is at rest';
const PAUSED = 'the sandbox is paused, and files are in its memory alone: resume it, or stop it';
const EARLIER = 'an earlier release has started the sandbox: restart it, and capture it then';

/**
 * Makes snapshots: a copy of the disk of a sandbox becomes a read-only layer, above those that the disk had below it.
 * docs/decisions/0068-snapshots-of-virtual-machines.md has the reasons.
 */
export class DiskCaptures implements EngineSnapshots {
  /** By sandbox. */
  private readonly capturing = new Map<string, Promise<unknown>>();
  private readonly steps = new PacedSteps();
  private readonly store: SnapshotStore;

  constructor(private readonly parts: Pick<MicrovmParts, 'directory' | 'snapshots' | 'images'>) {
    this.store = parts.snapshots;
  }

  async imageConfig(sandboxId: string): Promise<ImageConfig | undefined> {
    const held = await this.find(sandboxId);
    return held && { cmd: [], exposedPorts: [], volumes: [], ...held.identity.image };
  }

  async imageAtHand(wanted: WantedImage): Promise<{ digest: string; config: ImageConfig } | undefined> {
    return this.parts.images.atHand(wanted);
  }

  async capture(capture: Capture, signal: AbortSignal): Promise<Captured> {
    const { sandboxId } = capture;
    await this.ended(sandboxId, signal);
    signal.throwIfAborted();
    const work = this.captureNow(capture, signal).then(async (captured) => {
      await capture.alongside?.();
      return captured;
    });
    this.capturing.set(
      sandboxId,
      work.catch(() => undefined),
    );
    try {
      return await work;
    } finally {
      this.capturing.delete(sandboxId);
    }
  }

  /** Resolves when no capture of the sandbox is in progress. A start before would change the disk that is captured. */
  async ended(sandboxId: string, signal: AbortSignal): Promise<void> {
    for (let one = this.capturing.get(sandboxId); one; one = this.capturing.get(sandboxId)) {
      if (signal.aborted) return;
      await settled(one, signal);
    }
  }

  async list(): Promise<{ orgId: string; snapshotId: string }[]> {
    return (await this.store.list()).map(({ orgId, snapshotId }) => ({ orgId, snapshotId }));
  }

  /** Sandboxes have links of their own to what they need. */
  async remove(snapshotId: string): Promise<boolean> {
    await this.store.remove(snapshotId);
    return true;
  }

  async sweep(): Promise<void> {
    await this.store.removeLeftovers();
  }

  private async find(sandboxId: string): Promise<HeldSandbox | undefined> {
    return readHeld(this.parts.directory, sandboxId);
  }

  private async captureNow(
    { orgId, snapshotId, sandboxId, admit }: Capture,
    signal: AbortSignal,
  ): Promise<Captured> {
    const made = await this.store.find(snapshotId);
    if (made) return made;
    const before = await this.find(sandboxId);
    if (!before || (await bytesOf(before)) === undefined)
      throw new CaptureRefusedError('disk_missing', 'the sandbox has no disk on its engine: start it first');
    if (before.saved) throw new CaptureRefusedError('sandbox_changed', PAUSED);
    if (before.isAlive && before.run?.canHold !== true)
      throw new CaptureRefusedError('not_supported', EARLIER);
    const { identity, places } = before;
    const { layers: below = 0, imageDigest, image } = identity;
    checkLayers(below);
    return this.store.add(async (draft) => {
      const top = layerFile(draft, below);
      await this.copy(before, top, { admit, signal });
      const sealed = await sealLayer(top, identity.diskMib);
      if (typeof sealed === 'string')
        throw new CaptureRefusedError(
          'not_supported',
          `the disk of the sandbox cannot be captured: ${sealed}`,
        );
      await linkLayers(places.directory, draft, below);
      await link(places.base, join(draft, BASE_FILE));
      const layers = below + 1;
      return {
        orgId,
        snapshotId,
        diskMib: sealed.sizeMib,
        imageDigest,
        image,
        layers,
        bytes: await allocatedBytes(layerFiles(draft, layers)),
        contentDigest: await this.digestOf(orgId, top, signal),
      };
    });
  }

  /** The disk of a sandbox that does not run is at rest: a start waits. */
  private async copy(
    before: HeldSandbox,
    to: string,
    { admit, signal }: { admit: Capture['admit']; signal: AbortSignal },
  ): Promise<void> {
    const { places, identity } = before;
    const hold = before.isAlive ? await holdProcessors(places.run, signal) : undefined;
    try {
      // A removal takes the disk away. Then the copy fails.
      await admit?.((await bytesOf(before)) ?? 0);
      await copyDisk(places.disk, to, signal).catch(async (cause: unknown) => {
        if (await this.find(identity.sandboxId)) throw cause;
        throw new CaptureRefusedError('sandbox_changed', CHANGED, { cause });
      });
      const after = await this.find(identity.sandboxId);
      const isSame = after !== undefined && momentOf(after) === momentOf(before);
      if (hold?.isLost() === true || !isSame) throw new CaptureRefusedError('sandbox_changed', CHANGED);
    } finally {
      hold?.release();
    }
  }

  private async digestOf(orgId: string, path: string, signal: AbortSignal): Promise<string> {
    const file = await open(path, 'r');
    try {
      return `sha256:${await sha256Of(file, async (work) => this.steps.once(orgId, work), signal)}`;
    } finally {
      await file.close();
    }
  }
}

/** Undefined: it has no disk. */
async function bytesOf({ places, identity }: HeldSandbox): Promise<number | undefined> {
  const files = [...layerFiles(places.directory, identity.layers ?? 0), places.disk];
  return allocatedBytes(files).catch(() => undefined);
}

function checkLayers(below: number): void {
  if (below < MOST_LAYERS) return;
  throw new CaptureRefusedError(
    'too_many_layers',
    `the disk of the sandbox has ${below} layers below it, and the engine allows ${MOST_LAYERS}: copy the files to a sandbox of an image, and capture that sandbox`,
  );
}

/** Another value: the sandbox was started or stopped in between. */
function momentOf({ run, record, isAlive }: HeldSandbox): string {
  return [run?.runId, record?.startedAt, record?.end?.endedAt, isAlive].join(' ');
}

/** Resolves when the work is done, or at the abort. The signal may outlive the work, so its listener is removed. */
async function settled(work: Promise<unknown>, signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve) => {
    const over = () => {
      signal.removeEventListener('abort', over);
      resolve();
    };
    signal.addEventListener('abort', over);
    void work.finally(over);
  });
}
