import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { writeFileAtomically } from '../../lib/atomic-file.js';
import { parseJson } from '../../lib/json.js';
import {
  CaptureRefusedError,
  type Capture,
  type Captured,
  type EngineSnapshots,
} from '../../engine/runtime.js';
import { imageConfigOf, type ImageConfig } from '../../registry/image-config.js';

/** Nothing is on a simulated disk, and a size of its own makes the records of snapshots complete. */
const BYTES = 1024 * 1024;

interface Options {
  /** Whether the sandbox has started once. */
  holds: (sandboxId: string) => boolean;
  onCapture: ((capture: Capture) => Promise<void>) | undefined;
}

/** The records of snapshots, a file for each. */
export class SimulatedSnapshots implements EngineSnapshots {
  constructor(
    private readonly directory: string,
    private readonly options: Options,
  ) {}

  async imageConfig(sandboxId: string): Promise<ImageConfig | undefined> {
    const isThere = this.options.holds(sandboxId);
    return Promise.resolve(isThere ? imageConfigOf({}) : undefined);
  }

  async capture(capture: Capture, signal: AbortSignal): Promise<Captured> {
    const { orgId, snapshotId, sandboxId } = capture;
    if (!(await this.has(snapshotId))) {
      if (!this.options.holds(sandboxId)) {
        throw new CaptureRefusedError(
          'disk_missing',
          'the sandbox has no disk on its engine: start it first',
        );
      }
      await capture.admit?.(BYTES);
      await this.options.onCapture?.(capture);
      signal.throwIfAborted();
      await this.keep({ orgId, snapshotId });
    }
    await capture.alongside?.();
    const contentDigest = `sha256:${createHash('sha256').update(snapshotId).digest('hex')}`;
    return { bytes: BYTES, contentDigest };
  }

  async keep({ orgId, snapshotId }: Pick<Capture, 'orgId' | 'snapshotId'>): Promise<void> {
    await mkdir(this.directory, { recursive: true });
    await writeFileAtomically(this.pathOf(snapshotId), JSON.stringify({ orgId }), { replace: true });
  }

  async has(snapshotId: string): Promise<boolean> {
    return Promise.resolve(existsSync(this.pathOf(snapshotId)));
  }

  async list(): Promise<{ orgId: string; snapshotId: string }[]> {
    const names = existsSync(this.directory) ? await readdir(this.directory) : [];
    const ids = names.filter((name) => name.endsWith(SUFFIX)).map((name) => name.slice(0, -SUFFIX.length));
    const listed = await Promise.all(
      ids.map(async (snapshotId) => {
        const record = await readFile(this.pathOf(snapshotId), 'utf8').catch(ifRemoved);
        return record === undefined ? [] : [{ ...(parseJson(record) as { orgId: string }), snapshotId }];
      }),
    );
    return listed.flat();
  }

  async remove(snapshotId: string): Promise<boolean> {
    await rm(this.pathOf(snapshotId), { force: true });
    return true;
  }

  async sweep(): Promise<void> {}

  private pathOf(snapshotId: string): string {
    return join(this.directory, `${snapshotId}${SUFFIX}`);
  }
}

const SUFFIX = '.json';

/** Another call removed the record after the directory was read. */
function ifRemoved(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}
